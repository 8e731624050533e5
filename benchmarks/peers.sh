#!/bin/sh
# The peers' own environment: the harness 0.4.13 and minicons 0.3.39, in .venv-peers beside the checkout's .venv.
set -e
cd "$(dirname "$0")/.."
"${PYTHON:-python3.11}" -m venv "${VENV:-.venv-peers}"
"${VENV:-.venv-peers}/bin/python" -m pip install --quiet --disable-pip-version-check \
    --constraint benchmarks/peers-constraints.txt lm_eval==0.4.13 minicons==0.3.39
