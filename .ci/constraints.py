"""Resolve the dependencies of pyproject.toml anew and write the pins: `make constraints`.

Writes constraints.txt, which `make install` reads, and the same list into `[tool.uv]`, which `uv run` reads. It holds one
version of a package for Linux and macOS and for every Python that pyproject.toml admits, and takes all extras into account
although only `dev` is written down.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = """\
# The whole tree of slmsearch and its `dev` extra, one version of each package for every platform and Python >= 3.11.
# Written by `make constraints`, never by hand. Packages that torch itself pins per platform (CUDA, triton) are left out.
"""
PINNED_BY_TORCH = ("nvidia-", "cuda-", "triton")
BLOCK = re.compile(r"(?<=^constraint-dependencies = \[\n).*?(?=^\]$)", re.MULTILINE | re.DOTALL)


def compile_pins(uv: str, folder: Path, *options: str) -> list[str]:
    """Let uv resolve the pyproject.toml in a folder; returns `name==version` lines without markers."""
    output = folder / "compiled.txt"
    output.unlink(missing_ok=True)  # uv prefers the versions of an earlier output
    universal = ("--universal", "--python-version", "3.11", "--no-annotate", "--no-header", "--quiet")
    subprocess.run([uv, "pip", "compile", "pyproject.toml", *universal, *options, "-o", output.name], cwd=folder, check=True)
    return [line.partition(" ;")[0] for line in output.read_text().splitlines()]


def main() -> None:
    """Compile twice, everything together and then the part to be pinned, and write both places."""
    uv = sys.argv[1]
    pyproject = (ROOT / "pyproject.toml").read_text()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pyproject.toml").write_text(BLOCK.sub("", pyproject))
        everything = folder / "everything.txt"
        everything.write_text("\n".join(compile_pins(uv, folder, "--all-extras")))
        pins = compile_pins(uv, folder, "--extra", "dev", "--constraint", everything.name)
    pins = [pin for pin in pins if not pin.startswith(PINNED_BY_TORCH)]
    names = [pin.partition("==")[0] for pin in pins]
    if twice := {name for name in names if names.count(name) > 1}:
        sys.exit(f"constraints: {', '.join(sorted(twice))} would need a version per platform; bound them in pyproject.toml")
    (ROOT / "constraints.txt").write_text(HEADER + "".join(f"{pin}\n" for pin in pins))
    (ROOT / "pyproject.toml").write_text(BLOCK.sub("".join(f'    "{pin}",\n' for pin in pins), pyproject))
    print(f"constraints: {len(pins)} packages pinned")


if __name__ == "__main__":
    main()
