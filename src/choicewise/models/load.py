"""From the name or folder that a user gives, to a model that answers."""

import gc
import re
from pathlib import Path

from choicewise.errors import ModelError
from choicewise.models.fake import AntiOracle, HashModel, Oracle
from choicewise.models.model import Model

FAKES = {"fake:hash": HashModel, "fake:oracle": Oracle, "fake:anti-oracle": AntiOracle}


def load_model(
    name_or_path: str | Path,
    *,
    dtype: str | None = None,
    device: str | None = None,
    window: int | None = None,
    rung: str = "auto",
    batch_tokens: int | None = None,
    trust_remote_code: bool = False,
) -> Model:
    """The model called ``name_or_path``: ``fake:...`` or a local folder in the format of Hugging Face transformers.

    The other arguments are those of :func:`choicewise.models.local.loading.load`; a fake has no use for them.  Nothing
    is downloaded.  Raises ModelError when there is no such model, or when torch or transformers are not installed.
    """
    name = str(name_or_path)
    if fake := FAKES.get(name):
        return fake()
    if name.startswith("fake:"):
        raise ModelError(f"{name} is not a model; the fakes are {', '.join(FAKES)}")
    try:
        is_folder = Path(name).is_dir()
    except OSError as error:
        raise ModelError(f"{name} can't be read: {error.strerror}; check the path") from error
    if not is_folder:
        raise ModelError(f"there is no model folder {name}; {_advice(name)}")
    collecting = gc.isenabled()
    gc.disable()  # importing and reading vocabularies takes a sixth less time so, and nothing is to collect
    try:
        try:
            from choicewise.models.local.loading import load
        except ImportError as error:
            raise ModelError(
                f"{name} needs torch and transformers ({error}); run: pip install 'choicewise[hf]'"
            ) from error
        try:
            return load(name, dtype, device, window, rung, batch_tokens, trust_remote_code)
        except OSError as error:
            raise ModelError(f"{error.filename or name} can't be read: {error.strerror}; make it readable") from error
    finally:
        if collecting:
            gc.enable()


def _advice(name: str) -> str:
    if Path(name).is_file():
        return f"it is a file; pass the folder: {Path(name).parent}"
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        folder = name.split("/")[1]
        return f"if it is on the Hub: hf download {name} --local-dir {folder}, then pass the folder {folder}"
    return f"pass a folder with config.json and model.safetensors, or one of {', '.join(FAKES)}"
