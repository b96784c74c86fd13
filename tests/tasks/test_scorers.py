"""MLflow's own retrieval scorers on recorded traces, with a judge that reads: they find what they need, and agree with the product."""

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from statistics import mean

import pytest
from mlflow.genai.scorers import RetrievalGroundedness, RetrievalRelevance

from slmsearch.config import RunConfig
from slmsearch.environments.searcher.answer_sources import find_sources, is_supported
from slmsearch.environments.searcher.baselines import RetrieveThenAnswer
from slmsearch.environments.searcher.indexed_corpus import open_indexed_corpus
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.episodes.episode import Episode
from slmsearch.episodes.playable import without_token_limits
from slmsearch.episodes.sampler import Sampling
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.judge import ExactJudge
from tasks.traces import episode_span, trace_tags
from tasks.tracking import Tracker
from tests.flows.fakes import WordEmbedder
from tests.loopback import listening

QUESTIONS, JUDGED = 90, 50
ELSEWHERE = "the sea of Umbra"
"""An answer that no page states."""


class ReadingJudge(BaseHTTPRequestHandler):
    """Speaks OpenAI's protocol; documents that hold the answer support a claim, those that share a name with the question are relevant."""

    def do_POST(self) -> None:
        prompt = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"][-1]["content"]
        if (claim := re.search(r"<answer>(.*?)</answer>.*?<document>(.*)</document>", prompt, re.DOTALL)) is not None:
            answer, documents = claim.groups()
            said = answer.casefold() in documents.casefold()
        else:
            said = any(name in prompt.partition("<document>")[2] for name in re.findall(r"[A-Z]\w+", prompt.partition("<document>")[0]))
        told = json.dumps({"rationale": "read", "result": "yes" if said else "no"})
        choice = {"index": 0, "message": {"role": "assistant", "content": told}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        body = json.dumps(
            {"id": "1", "object": "chat.completion", "created": 1, "model": "judge", "choices": [choice], "usage": usage}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with listening(ReadingJudge) as address:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{address}/v1")
        monkeypatch.setenv("MLFLOW_MODEL_CATALOG_URI", "")  # else it asks the internet for the judge's price
        yield "openai:/judge"


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SearcherEnvironment:
    for module in ("build", "search"):
        monkeypatch.setattr(f"slmsearch.retrieval.{module}.load_embedder", lambda _: WordEmbedder())
    config = RunConfig().changed({"paths.data_dir": str(tmp_path), "corpus.world.pages": 60})
    return without_token_limits(SearcherEnvironment(config).with_tools(open_indexed_corpus(config).toolbox, ExactJudge()))


def record(environment: SearcherEnvironment, tracker: Tracker) -> dict[str, Episode]:
    """Play and record questions; every third is answered with what is written nowhere."""
    config, toolbox = environment.config, environment.toolbox
    asked = [one for questions in open_indexed_corpus(config).questions.values() for one in questions if one.hops == 1][:QUESTIONS]
    answers = RetrieveThenAnswer(toolbox, config.searcher.max_turns)
    unsure = {one.question for one in asked[::3]}

    def play(question: str, results: list[str]) -> str:
        text = answers(question, results)
        return f"<answer>{ELSEWHERE}</answer>" if question in unsure and "<answer>" in text else text

    played = environment.complete(
        asked, environment.play(asked, ScriptedSampler(play), Sampling(0.0, 0, environment.limits.max_turn_tokens))
    )
    rows = environment.grade(asked, played)
    traces = [(episode_span(episode, row), trace_tags(row)) for episode, row in zip(played, rows, strict=True)]
    with tracker.run("evaluate", "key") as run_id:
        tracker.record_traces(run_id, "evalkey", traces)
    return {question.id: episode for question, episode in zip(asked, played, strict=True)}


def test_scorers_of_mlflow_agree_with_what_the_product_calls_supported(
    environment: SearcherEnvironment, tracker: Tracker, judge: str
) -> None:
    episodes = record(environment, tracker)
    traces = tracker.client.search_traces(locations=[tracker.experiment_id], max_results=QUESTIONS)
    assert len(traces) == len(episodes) == QUESTIONS
    ours, theirs = list[bool](), list[bool]()
    for trace in traces:
        episode = episodes[trace.info.tags["question_id"]]
        supported = is_supported(episode, find_sources(episode, environment.toolbox.library))
        if supported is None:
            continue
        found = RetrievalGroundedness(model=judge)(trace=trace)
        assert not [one.error for one in found if one.error]
        ours.append(supported)
        theirs.append(any(one.value == "yes" for one in found))  # a judgement for each search and each reading
    assert 0.2 < mean(ours) < 0.8 and len(ours) >= JUDGED
    assert abs(mean(ours) - mean(theirs)) <= 0.05
    relevant = RetrievalRelevance(model=judge)(trace=traces[0])
    assert next(one.value for one in relevant if one.name == "retrieval_relevance/precision") > 0
