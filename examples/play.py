"""Let the shipped tiny model search a small generated encyclopedia, and print each turn: python examples/play.py"""

from pathlib import Path

from slmsearch import RunConfig, Sampling, SearcherEnvironment, make_sampler, open_environment
from slmsearch.corpus.store import load_questions
from slmsearch.models.known import shipped_models

config = RunConfig().changed(
    {
        "corpus.world.pages": 40,
        "policy.model": str(shipped_models() / "tiny-searcher"),
        "policy.device": "cpu",
        "paths.data_dir": str(Path("data").resolve()),
    }
)
digest = SearcherEnvironment.data(config).build(config.paths.corpora)
environment = open_environment(config, digest)
questions = load_questions(config.paths.corpora, digest)["train"][:3]
episodes = environment.play(questions, make_sampler(config.policy), Sampling())
for question, episode, row in zip(questions, episodes, environment.grade(questions, episodes), strict=True):
    print(f"\n{question.question}")
    for turn in episode.turns:
        print(f"  > {turn.text}")
    print(f"  answer {episode.answer!r}, right {question.answer!r}, reward {row.reward:.2f}")
