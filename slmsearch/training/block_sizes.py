"""Sizes of the pieces in which an update is computed; the memory plan (`memory.py`) counts with the same."""

ROWS_PER_BLOCK, SHORT, TOKENS_PER_BLOCK = 16, 512, 4096
"""Limits of a block, which goes through the model together in the update. Over trees: at most `TOKENS_PER_BLOCK` nodes, or one longer
episode. Row by row, with similar lengths and padding cut off: `ROWS_PER_BLOCK` episodes of up to `SHORT` tokens, else as many longer ones
as hold `TOKENS_PER_BLOCK` tokens."""
KEPT_STATES = 48 << 20
"""Hidden states (tokens x layers x size) of a part of an update on a CPU: 2,912 tokens of SmolLM2-135M. With fewer, oneDNN's bfloat16
products on AMX are half as fast (576 to 1,200 tokens, 576 outputs)."""
CHECKED_TOKENS, CHECKED_COLUMNS = 4096, 32_768
"""Tokens of the first batch's rows that are also scored row by row, to compare trees with them; and the size of the vocabulary part that
TRL's head then computes at once."""
MERGE_UP_TO = 500_000_000
"""Largest number of weights of a float32 model whose adapter is merged while episodes are played: it costs a copy of the adapted layers."""
TILE_VALUES = 16 << 20
"""Logits that are float32 at the same time in supervised training (64 MiB); without a limit those of 4,096 tokens of a vocabulary of
151,936 take 2.5 GB, and their gradient as much."""
