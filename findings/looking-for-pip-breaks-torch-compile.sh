#!/usr/bin/env bash
# Asking whether pip is there, with `importlib.util.find_spec("pip")`, breaks `torch.compile` in the rest of the process.
#
# setuptools 80.10.2 on Python 3.11: its hook for distutils hears the question, takes the process for pip itself and switches itself off.
# Whoever imports setuptools afterwards gets an AssertionError, pip or no pip. torch 2.13.0 imports it as it compiles for a CPU
# (torch.utils.cpp_extension), so that the compiler fails far from the question. `PathFinder.find_spec("pip")` does not ask the hook.
# The script shows it with setuptools alone; on Python 3.12 and later the hook does nothing.
# Seen 27 November 2026, Python 3.11.7:
#   asked of the path alone: setuptools 80.10.2
#   asked with find_spec: AssertionError
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet 'setuptools==80.10.2'
try='
try:
    import setuptools
    print("setuptools", setuptools.__version__)
except AssertionError as error:
    print(type(error).__name__)'
path=$("$folder/env/bin/python" -c "import importlib.machinery; importlib.machinery.PathFinder.find_spec('pip')$try")
asked=$("$folder/env/bin/python" -c "import importlib.util; importlib.util.find_spec('pip')$try")
echo "asked of the path alone: $path"
echo "asked with find_spec: $asked"
[[ "$path" == "setuptools 80.10.2" ]] && [[ "$asked" == AssertionError ]]
