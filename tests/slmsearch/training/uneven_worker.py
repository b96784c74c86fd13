"""A training process whose episodes are written out beforehand, so that one and two processes learn from the same batches.

Of the 64 episodes of a step the first half, which is the first process's share of two, all differ and are right or wrong: 32 rows to
learn from, two blocks. Of the other half one group does at most: one block. Gradients are left in the job's directory.
"""

import faulthandler
import sys
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import TrainerCallback

from slmsearch.environments.searcher.tools import Toolbox
from slmsearch.episodes.chat_renderer import ChatRenderer
from slmsearch.episodes.scripted import ScriptedSampler
from slmsearch.processes.watchdog import die_with_starter
from slmsearch.training import training_run as training
from slmsearch.training.job import TrainJob
from tests.slmsearch.training.through import train_through

PATIENCE_S = 240
"""Processes that wait for each other in vain are ended after this."""


class RowWriter(ScriptedSampler):
    """Writes answers that depend on the row's number among those of all processes."""

    def __init__(self, tokenizer):
        super().__init__(lambda question, results: "")
        self.renderer = ChatRenderer(tokenizer)

    def open(self, prompts, sampling):
        super().open(prompts, sampling)
        self._first = sampling.first_row
        return [self.renderer.encode_prompt(prompt) for prompt in prompts]

    def _write(self, row, result, room):
        number = self._first + row
        differs = number < 32 or (number < 40 and "2" not in self._questions[row])
        answer = "1823" + "." * (number % 8) if number % 3 else f"Mira {number} " + "x" * (number % 5)
        self._script = lambda question, results: f"<answer>{answer if differs else 'Dunmar'}</answer>"
        return super()._write(row, result, room)


class GradientCallback(TrainerCallback):
    """Leaves the gradients of every update."""

    def __init__(self, directory):
        self.directory = directory

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        if state.is_world_process_zero:
            names = {name.removeprefix("module."): weight for name, weight in model.named_parameters() if weight.requires_grad}
            torch.save({name: weight.grad for name, weight in names.items()}, self.directory / f"gradient-{state.global_step}.pt")


def run(job):
    """Train in this process, or in as many as were launched."""
    from slmsearch.corpus.library import Library
    from tests.slmsearch.training.conftest import PAGES, QUESTIONS, EveryPageIndex

    make_trainer, open_torch_sampler = training.make_trainer, training.open_torch_sampler

    def open_row_sampler(tokenizer, tool_role):
        @contextmanager
        def open_sampler(trainer):
            yield RowWriter(tokenizer)

        return open_sampler

    def make(*args):
        trainer = make_trainer(*args)
        trainer.add_callback(GradientCallback(job.directory))
        return trainer

    training.make_trainer, training.open_torch_sampler = make, open_row_sampler
    try:
        train_through(Toolbox(Library(PAGES), EveryPageIndex(), 4, 1500), QUESTIONS, job)
    finally:
        training.make_trainer, training.open_torch_sampler = make_trainer, open_torch_sampler


def main():
    die_with_starter()
    faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
    run(TrainJob.from_json(Path(sys.argv[1]).read_text()))


if __name__ == "__main__":
    main()
