"""`slmsearch bench agreement`: do backends play the same greedy episodes?

Episodes of the torch sampler, which keeps its cache across turns, are compared with those of transformers' own `generate`, which
computes every turn from nothing, and with those of a server where one is named. Where two part, the report says in which turn, and
how much likelier the one's token was than the other's: near 0 is a tie that rounding decides, more is a fault.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from slmsearch.bench.result import Say, render_table
from slmsearch.config import RunConfig
from slmsearch.corpus.questions import Question
from slmsearch.environments.indexed_corpus import open_indexed_corpus
from slmsearch.generate.engine_sampler import Completion, EngineSampler, Request
from slmsearch.generate.load import load_model
from slmsearch.generate.openai_sampler import OpenAISampler
from slmsearch.generate.sampler import Sampler, Sampling
from slmsearch.generate.torch_sampler import TorchSampler
from slmsearch.searcher.episode import Episode
from slmsearch.searcher.rollout import play_episodes
from slmsearch.searcher.tools import Toolbox


class GenerateEngine:
    """transformers' `generate`, one request at a time, as an engine."""

    def __init__(self, model: Any) -> None:
        """Take a model as it is."""
        self._model = model

    @torch.no_grad()
    def complete(self, requests: Sequence[Request], temperature: float, end_id: int) -> list[Completion]:
        """See `Engine.complete`; greedy only."""
        if temperature:
            raise ValueError("this engine is greedy")
        return [self._complete(request, end_id) for request in requests]

    def _complete(self, request: Request, end_id: int) -> Completion:
        ids = torch.tensor([request.history], device=self._model.device)
        settings: dict[str, Any] = {
            "attention_mask": torch.ones_like(ids),
            "do_sample": False,
            "max_new_tokens": request.max_tokens,
            "eos_token_id": end_id,
            "pad_token_id": end_id,
            "return_dict_in_generate": True,
            "output_logits": True,
        }
        output = self._model.generate(ids, **settings)
        sampled = output.sequences[0, ids.shape[1] :].tolist()
        logprobs = [float(scores[0].float().log_softmax(-1)[i]) for scores, i in zip(output.logits, sampled, strict=True)]
        return Completion(tuple(sampled), tuple(logprobs))


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two episodes of one question part."""

    question_id: str
    turn: int
    """Counted from 0."""
    ours: str
    """What the torch sampler wrote in that turn."""
    theirs: str
    gap: float | None
    """Log-probability of the token where they part, ours minus theirs, each under its own backend; None where ids are unknown."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The torch sampler beside another backend."""

    backend: str
    episodes: int
    same: int
    partings: list[Parting]
    logprob_gap: float | None
    """Largest difference of a token's log-probabilities in equal turns; None where they are unknown."""


def run_agreement(config: RunConfig, limit: int, served: str | None, say: Say) -> dict[str, Any]:
    """Play the same questions with every backend.

    Args:
        config: policy, corpus, limits.
        limit: questions of `evaluate.split`.
        served: base URL of an OpenAI-compatible server that serves `policy.model`; None leaves it out.
        say: told what is being done.
    """
    indexed = open_indexed_corpus(config)
    questions = indexed.questions[config.evaluate.split if config.evaluate.split != "all" else "test"][:limit]
    model, tokenizer = load_model(config.policy)
    role = config.searcher.tool_role
    others: dict[str, Sampler] = {"generate, no cache across turns": EngineSampler(GenerateEngine(model.eval()), tokenizer, role)}
    if served:
        others[f"served at {served}"] = OpenAISampler(config.policy.model, served, tool_role=role)
    say(f"torch sampler: {len(questions)} questions")
    ours = _play(questions, TorchSampler(model.eval(), tokenizer, role), indexed.toolbox, config)
    found = []
    for name, sampler in others.items():
        say(f"{name}: {len(questions)} questions")
        found.append(compare_episodes(name, questions, ours, _play(questions, sampler, indexed.toolbox, config)))
    return {"model": config.policy.model, "backends": [asdict(agreement) for agreement in found]}


def _play(questions: Sequence[Question], sampler: Sampler, toolbox: Toolbox, config: RunConfig) -> list[Episode]:
    return play_episodes(questions, sampler, toolbox, config.searcher, Sampling(max_new_tokens=config.searcher.max_turn_tokens))


def compare_episodes(backend: str, questions: Sequence[Question], ours: Sequence[Episode], theirs: Sequence[Episode]) -> Agreement:
    """Compare episodes turn by turn, by ids where both know them and by text where not."""
    partings, gaps = [], []
    for question, a, b in zip(questions, ours, theirs, strict=True):
        parting = None
        for number in range(max(len(a.turns), len(b.turns))):
            mine, other = (episode.turns[number] if number < len(episode.turns) else None for episode in (a, b))
            if mine is None or other is None or mine.text != other.text or (other.sampled_ids and mine.sampled_ids != other.sampled_ids):
                parting = Parting(question.id, number, mine.text if mine else "", other.text if other else b.failure, _gap(mine, other))
                break
            gaps += [abs(x - y) for x, y in zip(mine.sampled_logprobs, other.sampled_logprobs, strict=False)]
        if parting:
            partings.append(parting)
    return Agreement(backend, len(questions), len(questions) - len(partings), partings, max(gaps, default=None))


def _gap(mine: Any, other: Any) -> float | None:
    if mine is None or other is None or not other.sampled_ids:
        return None
    pairs = zip(mine.sampled_ids, other.sampled_ids, mine.sampled_logprobs, other.sampled_logprobs, strict=False)
    return next((x - y for i, j, x, y in pairs if i != j), None)


def render_agreement(result: dict[str, Any]) -> str:
    """Render the result as Markdown."""
    gaps = ["not known" if row["logprob_gap"] is None else f"{row['logprob_gap']:.1e}" for row in result["backends"]]
    rows = [(row["backend"], str(row["episodes"]), str(row["same"]), gap) for row, gap in zip(result["backends"], gaps, strict=True)]
    lines = [render_table(("backend", "episodes", "same as the torch sampler's", "largest gap of log-probabilities"), rows)]
    for row in result["backends"]:
        for parting in row["partings"][:5]:
            gap = "" if parting["gap"] is None else f", {parting['gap']:+.3f} nats"
            lines.append(f"{parting['question_id']}, turn {parting['turn']}{gap}: {parting['ours']!r} | {parting['theirs']!r}")
    return "\n".join(lines)
