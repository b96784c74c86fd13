#!/usr/bin/env bash
# click 8.5.1 and rich 15.0.0: what click.echo(..., err=True) says while a rich Progress or Live is drawn goes past it.
#
# rich replaces sys.stderr while it draws (`redirect_stderr=True`), so that whatever is printed appears above the bar, and print() does.
# click.echo looks sys.stderr up at every call, so one expects the same of it. But rich's FileProxy is an io.TextIOBase, whose own attribute `encoding`
# is None and hides that of the stream behind it. click takes a stream without an encoding for a misconfigured ASCII one and writes to its
# `.buffer`, which FileProxy hands out: the text lands at the end of the bar's line, and the bar is drawn again below.
#
# Seen (Python 3.11, Linux, UTF-8 locale):
#     sys.stderr is FileProxy, encoding None
#     print   above the bar: True
#     click   above the bar: False
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check click==8.5.1 rich==15.0.0
cat > "$folder/drawn.py" <<'PYTHON'
import io
import sys

import click
from rich.console import Console
from rich.progress import Progress

ERASED = "\x1b[2K"  # rich erases the bar's line before it writes above it


class Screen(io.TextIOWrapper):
    """A terminal that keeps what is written to it."""

    def isatty(self) -> bool:
        return True


def say(how: str) -> str:
    kept, terminal = io.BytesIO(), sys.stderr
    screen = sys.stderr = Screen(kept, encoding="utf-8", write_through=True)
    with Progress(console=Console(stderr=True, force_terminal=True, width=80), auto_refresh=False) as bar:
        bar.add_task("working", total=10)
        bar.refresh()
        kind, encoding = type(sys.stderr).__name__, sys.stderr.encoding
        click.echo("SAID", err=True) if how == "click" else print("SAID", file=sys.stderr)
    screen.flush()
    sys.stderr = terminal
    if how == "print":
        print(f"sys.stderr is {kind}, encoding {encoding}")
    return kept.getvalue().decode()


found = {how: say(how).partition("SAID")[0].endswith(ERASED) for how in ("print", "click")}
for how, above in found.items():
    print(f"{how:<7} above the bar: {above}")
sys.exit(found != {"print": True, "click": False})
PYTHON
TERM=xterm "$folder/venv/bin/python" "$folder/drawn.py"
