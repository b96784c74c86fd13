"""Writer of bundles, from a target, the contents of a run and its settings; all downloads happen here, none on the target."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from slmsearch.bundle.contents import Contents
from slmsearch.bundle.pack import pack
from slmsearch.bundle.remote import Archive
from slmsearch.bundle.target import Target
from slmsearch.bundle.wheels import Resolution, build_own_wheel, download, download_pins, resolve

SETTINGS = "settings.yaml"
"""Settings file in the run's folder on the other side; JSON, which YAML contains."""


@dataclass(frozen=True, slots=True)
class Written:
    """A written bundle."""

    resolution: Resolution
    archives: list[Archive]
    num_bytes: int

    def as_json(self) -> dict[str, object]:
        """Return the value that `--json` prints."""
        kinds = {"carried": self.resolution.carried, "used": self.resolution.used, "shadowed": self.resolution.shadowed}
        packages = {kind: dict(sorted(found.items())) for kind, found in kinds.items()}
        archives = [{"name": archive.name, "bytes": archive.bytes} for archive in self.archives]
        return {"bytes": self.num_bytes, "archives": archives, **packages}

    def render(self, out: Path) -> str:
        """Describe the bundle and the next steps for a person."""
        found = self.resolution
        shadowed = ", ".join(f"{name} {found.carried[name]} instead of {was}" for name, was in sorted(found.shadowed.items())) or "nothing"
        form = f"{len(self.archives)} archives" if self.archives else "a folder"
        return (
            f"{out}: {form}, {self.num_bytes / 1e6:,.0f} MB; {len(found.carried)} packages carried, {len(found.used)} installed ones used\n"
            f"replaced on the path: {shadowed}\n"
            "next    copy the folder to the other machine, and there: ./run.sh\n"
            "then    copy results-*.tar.gz back, and here: slmsearch bundle import results-*.tar.gz"
        )


def write_bundle(
    out: Path,
    target: Target,
    contents: Contents,
    settings: Mapping[str, object],
    flow: str,
    max_mb: int | None,
    environment: Mapping[str, str],
    say: Callable[[str], None],
) -> Written:
    """Write a bundle.

    Args:
        out: an empty directory.
        target: machine that the bundle is for.
        contents: files and packages of the run.
        settings: settings of the run on the other machine, nested.
        flow: flow to run there.
        max_mb: maximum size of an archive, in millions of bytes; None writes no archives.
        environment: variables that uv and pip read their settings from.
        say: called with progress messages.

    Raises:
        ServiceError: wheels cannot be resolved, built or fetched.
    """
    with TemporaryDirectory(prefix="slmsearch-bundle-", dir=out.absolute().parent) as name:
        folder = Path(name)
        wheels = folder / "wheels"
        say(f"resolving packages for Python {target.python} on {target.platforms[0]}")
        own = build_own_wheel(wheels, environment)
        resolution = resolve(own, target, environment)
        say(f"fetching {len(resolution.carried)} packages")
        download(resolution, target, wheels, environment)
        if contents.pins:
            data = folder / "data-pins.txt"
            data.write_text("\n".join(contents.pins) + "\n", encoding="utf-8")
            download_pins(data, target, wheels, environment)
        run = folder / SETTINGS
        run.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
        files = {f"wheels/{wheel.name}": wheel for wheel in sorted(wheels.glob("*.whl"))}
        files |= {f"run/{SETTINGS}": run, **{f"run/{path}": source for path, source in contents.files.items()}}
        facts = {
            "product": own.name.split("-")[1],
            "python": target.python,
            "used": dict(resolution.used),
            "data_wheels": [pin.partition("==")[0] for pin in contents.pins],
            "command": ["run", flow, "--config", SETTINGS],
        }
        archives = pack(out, files, facts, max_mb)
        size = sum(archive.bytes for archive in archives) or sum(source.stat().st_size for source in files.values())
    return Written(resolution, archives, size)
