"""Training a searcher with given tools."""

from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.judge.llm import make_judge
from slmsearch.training.training_run import train_environment


def train_through(toolbox, questions, job, checkpoint=None, held_out=()):
    judge = make_judge(job.config.judge, job.config.paths.data_dir)
    train_environment(SearcherEnvironment(job.config).with_tools(toolbox, judge), questions, job, checkpoint, held_out)
