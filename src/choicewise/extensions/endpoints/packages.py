"""Refuse models whose packages are not installed."""

from __future__ import annotations

from importlib.util import find_spec

from choicewise.errors import ModelError, install_line


def need_client() -> None:
    """Raise ModelError if a package is missing that asks servers."""
    for package in ("httpx2", "stamina"):
        if find_spec(package) is None:
            raise ModelError(
                f"a model behind a server needs httpx2 and stamina ({package} is missing); run: "
                f"{install_line('server')}"
            )


def need_vllm(name: str) -> None:
    """Raise ModelError, naming the model ``name``, if vLLM or a package that asks it is missing."""
    for package in ("vllm", "tokenizers", "httpx2"):
        spec = find_spec(package)
        if spec is None or spec.origin is None:  # a folder of that name is no package
            raise ModelError(
                f"{name} needs vLLM ({package} is missing); run: {install_line('vllm')}"
            )
