"""Evaluating policies end to end over a small corpus, without a model."""

import pytest

from slmsearch.config import EvaluateConfig, JudgeConfig, PathsConfig, PolicyConfig, RunConfig
from slmsearch.corpus.questions import UNKNOWN_ANSWER, Question
from slmsearch.environments.searcher.failure_modes import measure_episode
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment, scoring
from slmsearch.episodes.episode import StopReason
from slmsearch.episodes.grade import grade_episodes, judging_ahead
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.errors import CorpusError, EvaluationError
from slmsearch.evaluate import run
from slmsearch.evaluate.policies import PolicySpec, parse_policy
from slmsearch.evaluate.run import eval_key, select_questions
from slmsearch.evaluate.store import load_evaluation, write_evaluation
from slmsearch.judge import ExactJudge, Verdict
from slmsearch.judge.cache import FILE, VerdictCache
from tests.judge_server import Behaviour, JudgeServer
from tests.slmsearch.evaluate.builders import Tolerant, is_documented, play, say
from tests.slmsearch.evaluate.corpus import QUESTIONS, FlakyIndex, evaluate_searcher, make_toolbox

CONFIG = RunConfig(evaluate=EvaluateConfig(batch_size=2))
RETRIEVE = PolicySpec("retrieve-then-answer", None)


def test_every_question_has_a_row_and_an_episode(tmp_path) -> None:
    seen: list[tuple[int, int]] = []
    found = evaluate_searcher(QUESTIONS, make_toolbox(), RETRIEVE, CONFIG, lambda done, total: seen.append((done, total)))
    assert [row.question_id for row in found.rows] == [episode.question_id for episode in found.episodes] == ["q1", "q2", "q3", "q4", "q5"]
    assert seen == [(2, 5), (4, 5), (5, 5)]
    assert found.metrics["answer/exact_match"] == 0.8
    assert found.slices["kind=two_hop"]["answer/exact_match"] == 0.0
    assert found.rows[3].failure_mode == "abstained_wrongly"
    assert found.metrics["search/first_hit_frac"] == 1.0
    assert found.metrics["search/gold_read_frac"] == 0.75  # one of the four that name gold sections needs a second hop
    assert all(is_documented(name) for name in found.metrics)
    assert found.seconds > 0
    write_evaluation(tmp_path, "key", found, {})
    assert load_evaluation(tmp_path, "key") == found


def test_a_policy_without_a_model_has_no_tokens_and_no_token_limit() -> None:
    config = CONFIG.model_copy(update={"searcher": CONFIG.searcher.model_copy(update={"max_episode_tokens": 16, "max_turn_tokens": 1})})
    for name in ("random", "retrieve-then-answer"):
        found = evaluate_searcher(
            QUESTIONS, make_toolbox(), parse_policy(name, PolicyConfig(), SearcherEnvironment.controls.baselines, "data"), config
        )
        assert found.metrics["stop/max_tokens"] == 0.0
        assert found.metrics["episode/sampled_tokens"] == found.metrics["episode/completion_tokens"] == 0.0
        assert not any(episode.prompt_ids or episode.completion_ids for episode in found.episodes)


def test_a_model_policy_keeps_its_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "make_policy_sampler", lambda *args: ScriptedSampler(lambda question, results: "<answer>1823</answer>"))
    found = evaluate_searcher(
        QUESTIONS[:1], make_toolbox(), parse_policy("untrained", PolicyConfig(), SearcherEnvironment.controls.baselines, "data"), CONFIG
    )
    assert found.rows[0].sampled_tokens == len("<answer>1823</answer>")
    assert found.rows[0].correct == 1.0


def test_the_same_again_is_the_same_but_for_time() -> None:
    first, second = (evaluate_searcher(QUESTIONS, make_toolbox(), PolicySpec("random", None), CONFIG) for _ in range(2))
    assert {**first.metrics, "time/episode_s": 0} == {**second.metrics, "time/episode_s": 0}


def test_a_few_failures_are_counted_and_left_out() -> None:
    config = CONFIG.model_copy(update={"decision": Tolerant(), "evaluate": EvaluateConfig(batch_size=1)})
    found = evaluate_searcher(QUESTIONS, make_toolbox(FlakyIndex("prize")), RETRIEVE, config)
    assert found.rows[4].failed
    assert found.rows[4].failure.startswith("index: the index is gone")
    assert (found.metrics["errors/index"], found.metrics["stop/failed"]) == (1.0, 0.2)
    assert found.metrics["answer/exact_match"] == 0.75


def test_an_outage_stops_after_one_batch_and_says_why() -> None:
    seen: list[int] = []
    with pytest.raises(EvaluationError, match=r"2 of 2 episodes failed.*index: the index is gone"):
        evaluate_searcher(QUESTIONS, make_toolbox(FlakyIndex("")), RETRIEVE, CONFIG, lambda done, total: seen.append(done))
    assert seen == []


def test_failed_episodes_are_neither_judged_nor_scored() -> None:
    asked: list[str | None] = []

    class Spy(ExactJudge):
        def judge(self, items):
            asked.extend(answer for _, answer in items)
            return super().judge(items)

    episodes = [play(say("1823")), play(stop_reason=StopReason.FAILED, failure="index: gone")]
    rows = grade_episodes(QUESTIONS[:2], episodes, Spy(), scoring(CONFIG.reward), measure_episode)
    assert asked == ["1823"]
    assert [row.failed for row in rows] == [False, True]
    assert rows[1].reward_parts == {}


def test_an_outage_of_the_judge_is_a_failed_row() -> None:
    class Down:
        def judge(self, items):
            return [Verdict(None, "judge", "judge: down") for _ in items]

    (row,) = grade_episodes(QUESTIONS[:1], [play(say("x"))], Down(), scoring(CONFIG.reward), measure_episode)
    assert (row.failed, row.failure) == (True, "judge: down")


class Eager:
    """Says yes to what it was told of early, and no to the rest."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, str | None]] = []
        self.forgotten = 0

    def begin(self, question: Question, answer: str | None) -> None:
        self.begun.append((question.id, answer))

    def judge(self, items):
        return [Verdict((question.id, answer) in self.begun, "judge") for question, answer in items]

    def forget(self) -> None:
        self.forgotten += 1

    def release(self) -> None:
        raise AssertionError("only training gives the device back")


def test_judging_begins_when_an_episode_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Eager()
    monkeypatch.setattr("tests.slmsearch.evaluate.corpus.make_judge", lambda config, data_dir: judge)
    found = evaluate_searcher(QUESTIONS, make_toolbox(), RETRIEVE, CONFIG)
    assert sorted(judge.begun) == sorted((episode.question_id, episode.answer) for episode in found.episodes)
    assert [row.correct for row in found.rows] == [1.0] * 5
    assert judge.forgotten == 0


def test_failed_episodes_are_not_begun() -> None:
    judge = Eager()
    with judging_ahead(judge) as on_end:
        assert on_end is not None
        on_end(QUESTIONS[0], play(stop_reason=StopReason.FAILED, failure="index: gone"))
        on_end(QUESTIONS[1], play(say("x")))
    assert judge.begun == [("q2", "x")]


def test_what_was_begun_is_dropped_where_playing_breaks_off() -> None:
    judge = Eager()
    with pytest.raises(KeyboardInterrupt), judging_ahead(judge):
        raise KeyboardInterrupt
    assert judge.forgotten == 1


def test_the_exact_judge_is_told_nothing() -> None:
    with judging_ahead(ExactJudge()) as on_end:
        assert on_end is None


def test_verdicts_are_kept_under_the_data_directory(tmp_path) -> None:
    config = CONFIG.model_copy(update={"paths": PathsConfig(data_dir=str(tmp_path))})
    with JudgeServer(Behaviour()) as server:
        config = config.model_copy(update={"judge": JudgeConfig(kind="ollama", model="judge", base_url=server.url)})
        first, second = (evaluate_searcher(QUESTIONS, make_toolbox(), PolicySpec("random", None), config) for _ in range(2))
        assert server.counts["/api/chat"] == VerdictCache(tmp_path / FILE).count() > 0
    assert [row.correct for row in first.rows] == [row.correct for row in second.rows]


QUESTIONS_BY_SPLIT = {split: [Question(f"{split}{i}", "?", "x") for i in range(20)] for split in ("train", "validation", "test")}


def test_select_questions() -> None:
    assert select_questions(QUESTIONS_BY_SPLIT, EvaluateConfig()) == QUESTIONS_BY_SPLIT["test"]
    assert len(select_questions(QUESTIONS_BY_SPLIT, EvaluateConfig(split="all"))) == 60
    some = select_questions(QUESTIONS_BY_SPLIT, EvaluateConfig(limit=5))
    assert some == select_questions(QUESTIONS_BY_SPLIT, EvaluateConfig(limit=5))
    assert [question for question in QUESTIONS_BY_SPLIT["test"] if question in some] == some  # corpus order
    assert some != QUESTIONS_BY_SPLIT["test"][:5]
    assert len(select_questions(QUESTIONS_BY_SPLIT, EvaluateConfig(limit=500))) == 20
    with pytest.raises(CorpusError, match="'test' holds no question"):
        select_questions({"train": QUESTIONS_BY_SPLIT["train"]}, EvaluateConfig())


def test_the_key_follows_everything_that_decides_the_result() -> None:
    base = eval_key(QUESTIONS, "index", RETRIEVE, CONFIG, "digest")
    assert base == eval_key(list(QUESTIONS), "index", RETRIEVE, RunConfig(evaluate=EvaluateConfig(batch_size=2, limit=7)), "digest")
    searcher, reward = CONFIG.searcher.model_copy(update={"max_turns": 3}), CONFIG.reward.model_copy(update={"call_cost": 0.5})
    others = [
        eval_key(QUESTIONS[:4], "index", RETRIEVE, CONFIG, "digest"),
        eval_key([*QUESTIONS[:4], Question("q5", "Which prize?", UNKNOWN_ANSWER)], "index", RETRIEVE, CONFIG, "digest"),
        eval_key(QUESTIONS, "other", RETRIEVE, CONFIG, "digest"),
        eval_key(QUESTIONS, "index", PolicySpec("random", None), CONFIG, "digest"),
        eval_key(QUESTIONS, "index", RETRIEVE, CONFIG.model_copy(update={"searcher": searcher}), "digest"),
        eval_key(QUESTIONS, "index", RETRIEVE, CONFIG.model_copy(update={"reward": reward}), "digest"),
        eval_key(QUESTIONS, "index", RETRIEVE, CONFIG.model_copy(update={"judge": JudgeConfig(kind="ollama")}), "digest"),
        eval_key(
            QUESTIONS,
            "index",
            RETRIEVE,
            CONFIG.model_copy(update={"retrieval": CONFIG.retrieval.model_copy(update={"top_k": 9})}),
            "digest",
        ),
    ]
    assert len({base, *others}) == len(others) + 1
