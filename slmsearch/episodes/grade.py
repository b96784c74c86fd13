"""Grading of episodes: judged from the moment each has ended, and scored, a row each."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from slmsearch.corpus.questions import Question
from slmsearch.episodes.episode import Episode, StopReason
from slmsearch.episodes.reward import Reward
from slmsearch.episodes.rows import NOT_MEASURED, EpisodeRow, Measures, make_row
from slmsearch.judge import EagerJudge, Judge, Verdict

Score = Callable[[Question, Episode, bool, float], Reward]
"""Question, episode, verdict and a draw from 0 to 1 -> reward."""
Measure = Callable[[Question, Episode], Measures]
OnEnd = Callable[[Question, Episode], None]
"""Callback that receives an episode as soon as it has ended."""


@contextmanager
def judging_ahead(judge: Judge) -> Iterator[OnEnd | None]:
    """Yield the function that `play_episodes` calls at the end of each episode, so that judging begins while others are still sampled.

    `grade_episodes` then waits only for the remaining verdicts; verdicts and their order are the same. For judges that answer at once the
    function is None. An error while playing cancels the judging that has begun.
    """
    if not isinstance(judge, EagerJudge):
        yield None
        return

    def on_end(question: Question, episode: Episode) -> None:
        if episode.stop_reason is not StopReason.FAILED:
            judge.begin(question, episode.answer)

    try:
        yield on_end
    except BaseException:
        judge.forget()
        raise


def judge_episodes(questions: Sequence[Question], episodes: Sequence[Episode], judge: Judge) -> list[Verdict]:
    """Judge played episodes, one verdict each; the verdict of a failed one is its failure."""
    pairs = list(zip(questions, episodes, strict=True))
    asked = [i for i, (_, episode) in enumerate(pairs) if episode.stop_reason is not StopReason.FAILED]
    judged = dict(zip(asked, judge.judge([(pairs[i][0], pairs[i][1].answer) for i in asked]), strict=True))
    return [judged.get(i, Verdict(None, failure=episode.failure)) for i, episode in enumerate(episodes)]


def grade_episodes(
    questions: Sequence[Question],
    episodes: Sequence[Episode],
    judge: Judge,
    score: Score,
    measure: Measure,
    verdicts: Sequence[Verdict] | None = None,
    draws: Sequence[float] = (),
) -> list[EpisodeRow]:
    """Judge and score played episodes, one row each; failed ones are neither judged nor scored.

    `verdicts` are those of `judge_episodes`; None judges here. `draws`, from 0 to 1 for each episode, are needed only if the reward is
    random.
    """
    verdicts = judge_episodes(questions, episodes, judge) if verdicts is None else verdicts
    rows = []
    for i, (question, episode, verdict) in enumerate(zip(questions, episodes, verdicts, strict=True)):
        scored = None if verdict.correct is None else score(question, episode, verdict.correct, draws[i] if draws else 0.0)
        measures = NOT_MEASURED if scored is None else measure(question, episode)
        rows.append(make_row(question, episode, verdict, scored, measures))
    return rows
