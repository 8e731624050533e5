"""On the path of a vLLM server without a GPU: Triton has a backend for this machine in name, and interprets its kernels
(TRITON_INTERPRET=1), so that the runner which replays traces starts. Python imports this in every process of it."""

from types import SimpleNamespace

import triton.backends

triton.backends.backends.setdefault("cpu", SimpleNamespace(driver=None))
