#!/usr/bin/env bash
# Importing bm25s starts JAX where that is installed, on every device that it finds, though nothing is ranked.
#
# bm25s 0.3.16 with jax 0.10.2: as bm25s is imported it asks JAX for the best of five numbers, which starts JAX's backends. By default JAX
# then reserves three quarters of a GPU's memory for the process: on an H100 with 80 GB (26 and 27 November 2026) 61 GB were gone before a model
# was loaded. The script shows the start of the backends, which a CPU shows, too.
# Seen 27 November 2026, Python 3.11:
#   jax alone: backends started False
#   jax, then bm25s: backends started True
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet 'bm25s==0.3.16' 'jax==0.10.2' 'jaxlib==0.10.2'
started='from jax._src import xla_bridge; print("backends started", xla_bridge.backends_are_initialized())'
alone=$("$folder/env/bin/python" -c "import jax, jax.lax; $started")
both=$("$folder/env/bin/python" -c "import jax, jax.lax, bm25s; $started")
echo "jax alone: $alone"
echo "jax, then bm25s: $both"
[[ "$alone" == *False ]] && [[ "$both" == *True ]]
