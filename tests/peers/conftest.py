"""Other tools, offline; their own warnings are theirs."""

import os
import tempfile

import pytest

QUIET = {
    "DO_NOT_TRACK": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_OFFLINE": "1",
    "INSPECT_LOG_LEVEL": "warning",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MPLBACKEND": "agg",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_OFFLINE": "1",
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
}
os.environ.update(QUIET)
# What the tools keep between runs; without it one test would read what another cached.
os.environ["HF_HOME"] = os.environ["XDG_CACHE_HOME"] = os.environ["XDG_DATA_HOME"] = (
    tempfile.mkdtemp("-peers")
)
for variable in ("HF_TOKEN", "WANDB_API_KEY", "MLFLOW_TRACKING_URI"):
    os.environ.pop(variable, None)


def pytest_configure(config: pytest.Config) -> None:
    """Only our own warnings are errors here."""
    config.addinivalue_line("filterwarnings", "default")
    config.addinivalue_line("filterwarnings", "error:::choicewise")
