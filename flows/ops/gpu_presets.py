"""The presets for a GPU that lie in `deployments/configs`, with what makes them small laid over them."""

from collections.abc import Sequence

from flows.cli.settings import find_project_root, load_config
from slmsearch.bench.gpu import Preset, is_gpu_preset
from slmsearch.errors import ConfigError

OVERLAY = "overlay-small.yaml"


def load_presets(names: Sequence[str] = ()) -> list[Preset]:
    """Load presets by name, or all that are for a GPU.

    Raises:
        ConfigError: there is none of a name, or it is not for a GPU.
    """
    folder, found = find_project_root() / "deployments" / "configs", []
    overlay = folder / OVERLAY
    for file in sorted(folder.glob("*.yaml")):
        if names and file.stem not in names:
            continue
        real = load_config([file], environment={})
        if is_gpu_preset(real):
            found.append(Preset(file.stem, (file, overlay), load_config([file, overlay], environment={}), real))
    if missing := sorted(set(names) - {preset.name for preset in found}):
        known = ", ".join(preset.name for preset in load_presets())
        raise ConfigError(f"{missing[0]!r} is no preset for a GPU; there are {known}")
    return found
