"""A training job small enough for a test: a model that has seen two episodes, two pages, an index that always finds both.

In one episode of three the model searches and answers right, in the others it answers wrong at once: what reinforcement learning
has to find is that searching pays.
"""

from collections.abc import Sequence

import pytest

from slmsearch.config import PathsConfig, PolicyConfig, RunConfig, SearcherConfig, TrainConfig
from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import Question
from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.errors import IndexUnusableError
from slmsearch.retrieval.hits import Hit
from slmsearch.training.job import TrainJob

PAGES = [Page("mira", "Mira", "# Mira\nBorn in 1823.\n"), Page("dunmar", "Dunmar", "# Dunmar\nA river.\n")]
QUESTIONS = [Question(f"q{i}", f"When was Mira {i} born?", "1823", page_ids=("mira",)) for i in range(7)]


class EveryPageIndex:
    """Finds all pages, whatever the query; breaks down on queries that hold "broken"."""

    key = "every-page"

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """See `Index.search`."""
        if any("broken" in query for query in queries):
            raise IndexUnusableError("index gone: build it again")
        return [[Hit(page.id, page.title, 1.0, page.id) for page in PAGES[:top_k]] for _ in queries]


@pytest.fixture
def questions():
    return QUESTIONS


@pytest.fixture
def toolbox():
    return Toolbox(Library(PAGES), EveryPageIndex(), top_k=4, max_section_chars=1500)


@pytest.fixture(scope="session")
def one_thread():
    """Keep torch to one thread: on busy cores, two that wait for each other make small models a hundred times slower."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def model_dir(one_thread, tmp_path_factory):
    """A Qwen3 model of some 80,000 weights with tiny-searcher's tokenizer, trained for seconds."""
    return save_qwen3(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def grouped_dir(one_thread, tmp_path_factory):
    """The same with grouped-query attention, as real models have it."""
    return save_qwen3(tmp_path_factory.mktemp("grouped"), num_attention_heads=4, num_key_value_heads=2)


def save_qwen3(path, **sizes):
    """Make a model, teach it both episodes, and write it."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from slmsearch.training.bootstrap import build_tokenizer

    tokenizer = build_tokenizer(["When was Mira born? 1823"] * 9)
    torch.manual_seed(0)
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
    small = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 128,
        "max_position_embeddings": 1024,
    }
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=len(tokenizer), tie_word_embeddings=True, **ends, **{**small, **sizes}))
    imitate(model, tokenizer)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def imitate(model, tokenizer):
    """Train on both episodes for each question until the model writes little else."""
    import torch

    from slmsearch.environments.registry import environment_of
    from slmsearch.episodes.chat_renderer import ChatRenderer
    from slmsearch.episodes.demonstration import Demonstration
    from slmsearch.training.encoding import encode_demonstration

    searching = (('<tool>search_pages("Mira")</tool>', "mira: Mira\ndunmar: Dunmar"), ("<answer>1823</answer>", ""))
    guessing = (("<answer>Mira</answer>", ""),)
    seen = [Demonstration(question.question, turns) for question in QUESTIONS for turns in (searching, guessing, guessing)]
    encoded = [encode_demonstration(demonstration, ChatRenderer(tokenizer), environment_of(RunConfig())) for demonstration in seen]
    width = max(len(episode.ids) for episode in encoded)
    ids = torch.tensor([episode.ids + [0] * (width - len(episode.ids)) for episode in encoded])
    labels = torch.tensor([episode.labels + [-100] * (width - len(episode.ids)) for episode in encoded])
    optimiser = torch.optim.Adam(model.parameters(), 0.005)
    for _ in range(80):
        optimiser.zero_grad()
        model(ids, labels=labels).loss.backward()
        optimiser.step()


@pytest.fixture
def model_path(model_dir):
    """The model that jobs name; overridden where none is loaded."""
    return model_dir


@pytest.fixture
def make_job(tmp_path, model_path):
    """Make a job in a directory of its own; keywords are settings of `TrainConfig`."""

    def make(name="run", **train):
        settings = {"steps": 4, "questions_per_step": 2, "group_size": 4, "checkpoint_steps": 2, "learning_rate": 3e-3, **train}
        config = RunConfig(
            paths=PathsConfig(data_dir=str(tmp_path)),
            policy=PolicyConfig(model=str(model_path), device="cpu"),
            searcher=SearcherConfig(max_turn_tokens=16, max_episode_tokens=80, max_turns=3),
            train=TrainConfig(**settings),
        )
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        return TrainJob(directory, tmp_path / "corpora", "digest", tmp_path / "index", "index-key", "key", config)

    return make


def _teach_ending(model, end_id, probability):
    import torch

    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    ids = torch.randint(5, model.config.vocab_size, (8, 24))
    for _ in range(80):
        optimiser.zero_grad()
        logprobs = model(ids).logits.log_softmax(-1)[..., end_id]
        (logprobs - torch.tensor(probability).log()).square().mean().backward()
        optimiser.step()
