"""Resolve the dependencies of pyproject.toml anew and write the pins: `make constraints`.

Writes constraints.txt, the one list of pins. It holds one version of a package for Linux and macOS and for every Python that pyproject.toml
admits, and takes all extras into account although only `dev`, `production` and `verifiers` are written down.
"""

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = """\
# The whole tree of slmsearch and its extras `dev`, `production` and `verifiers`, one version for every platform and Python >= 3.11.
# Written by `make constraints`, never by hand. Packages that torch itself pins per platform (CUDA, triton) are left out.
"""
PINNED_BY_TORCH = ("nvidia-", "cuda-", "triton")


def compile_pins(uv: str, folder: Path, extras: list[str], within: list[str]) -> list[str]:
    """Let uv resolve the pyproject.toml in a folder, within earlier pins; returns `name==version` lines without markers."""
    output, constraint = folder / "compiled.txt", folder / "within.txt"
    output.unlink(missing_ok=True)  # uv prefers the versions of an earlier output
    constraint.write_text("\n".join(within))
    options = ["--universal", "--python-version", "3.11", "--no-annotate", "--no-header", "--quiet", "--constraint", constraint.name]
    options += [word for extra in extras for word in ("--extra", extra)]
    subprocess.run([uv, "pip", "compile", "pyproject.toml", *options, "-o", output.name], cwd=folder, check=True)
    return [line.partition(" ;")[0] for line in output.read_text().splitlines()]


def main() -> None:
    """Compile everything together, then what is to be pinned within that, and write them."""
    uv = sys.argv[1]
    pyproject = (ROOT / "pyproject.toml").read_text()
    extras = list(tomllib.loads(pyproject)["project"]["optional-dependencies"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pyproject.toml").write_text(pyproject)
        everything = compile_pins(uv, folder, extras, [])
        pins = compile_pins(uv, folder, ["dev", "production", "verifiers"], everything)
    pins = [pin for pin in pins if not pin.startswith(PINNED_BY_TORCH)]
    names = [pin.partition("==")[0] for pin in pins]
    if twice := {name for name in names if names.count(name) > 1}:
        sys.exit(f"constraints: {', '.join(sorted(twice))} would need a version per platform; bound them in pyproject.toml")
    (ROOT / "constraints.txt").write_text(HEADER + "".join(f"{pin}\n" for pin in pins))
    print(f"constraints: {len(pins)} packages pinned")


if __name__ == "__main__":
    main()
