"""What `slmsearch preflight` prints: its own colours, and nothing that a model wrote steers the terminal."""

import pytest
from click.testing import CliRunner

from flows.cli.main import cli
from slmsearch.episodes.playable import Check


@pytest.mark.parametrize("colour", [True, False])
def test_colours_are_the_commands_alone(monkeypatch: pytest.MonkeyPatch, colour: bool) -> None:
    def checked(config, tell, show):
        tell(Check("mask", True, "as \x1b[2Jit should be", ""))
        show([("a\x1b[31mb", True)])
        return [Check("mask", True, "", "")]

    monkeypatch.setattr("slmsearch.training.preflight.preflight_here", checked)
    monkeypatch.setattr("flows.runtime.fetching.require_policy", lambda policy, paths: None)
    done = CliRunner().invoke(cli, ["preflight"], color=colour)
    assert done.exit_code == 0, done.output
    assert "as ⟨U+001B⟩[2Jit should be" in done.stderr and "a⟨U+001B⟩[31mb" in done.stderr
    assert ("\x1b[32m" in done.stderr) == colour
