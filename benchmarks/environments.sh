#!/bin/sh
# Two environments beside the checkout's .venv, each with what its users install and nothing more: the peers, the harness
# 0.4.13 and minicons 0.3.39, in .venv-peers; ours, without the libraries of the tests, in .venv-ours.
set -e
cd "$(dirname "$0")/.."
install() {
    "${PYTHON:-python3.11}" -m venv "$1"
    environment=$1
    shift
    "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --constraint "$@"
}
install .venv-peers benchmarks/peers-constraints.txt lm_eval==0.4.13 minicons==0.3.39
install .venv-ours constraints.txt --editable '.[hf]'
