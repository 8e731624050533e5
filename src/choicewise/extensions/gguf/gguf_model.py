"""Compute the model in a GGUF file with transformers, in plain numbers of the values that the file
gives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from choicewise.errors import ModelError, install_line
from choicewise.extensions.gguf.gguf_file import read_gguf
from choicewise.extensions.gguf.gguf_settings import file_digest, settings_folder
from choicewise.models.local.files import PACKAGES, Quantisation, is_installed
from choicewise.models.local.folder_model import FolderModel

if TYPE_CHECKING:
    from choicewise.models.local.networks import Spread
    from choicewise.ports import Loading

_NOT_PARAMETERS = ("rope_freqs.weight",)  # read into the configuration


class GgufModel(FolderModel):
    """The causal language model in the GGUF file at ``path``.

    Its weights are de-quantised when they are loaded and computed with in ``dtype``, by default
    float32.  Arguments as of :class:`~choicewise.models.local.folder_model.FolderModel`, which
    computes it.  The identity holds the file's sha256.  Raises ModelError if the file is damaged or
    no language model, a package is missing, or transformers would compute another model than the
    file states.
    """

    def __init__(self, path: str | Path, dtype: str | None = None, **options: Any) -> None:
        self.path = Path(path)
        _require_packages(self.path)
        self.file = read_gguf(self.path)
        self.sha256 = file_digest(self.path)
        if dtype in (None, "auto"):
            dtype = "float32"
        super().__init__(settings_folder(self.file, self.sha256), dtype=dtype, **options)
        self.source = f"{self.path.name}@sha256:{self.sha256}"

    @property
    def dtype(self) -> str:
        """Return the quantisation of the file and the arithmetic, such as ``Q4_1 (gguf), float32``."""
        return f"{self.file.quantisation} (gguf), {self.asked_dtype}"

    def tensors(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the name of every tensor with its shape, as the de-quantised float32 values that
        are loaded.
        """
        for tensor in self.file.tensors:
            yield (
                tensor.name,
                {"dtype": "F32", "shape": tensor.shape, "data_offsets": (0, 4 * tensor.values)},
            )

    def _name_of_files(self) -> str:
        return self.path.stem

    def _read_quantisation(self) -> Quantisation:
        return Quantisation("gguf", self.file.quantisation)

    def _identify(self) -> str:
        """Return the digest over the file, and the settings that were made of it."""
        config = (self.folder / "config.json").read_bytes()
        identity = f"gguf {self.sha256} {self.tokenizer.digest}".encode() + config
        return hashlib.sha256(identity).hexdigest()

    def _load(self, spread: Spread | None) -> Any:
        """Return the torch module with the file's values; ModelError if some of them have no place
        in it.
        """
        from choicewise.extensions.gguf.gguf_values import read_values
        from choicewise.models.local.networks import load_network

        values = read_values(self.file, self.folder)
        try:
            network = load_network(
                self.folder,
                self.config,
                self.asked_dtype,
                self.device,
                False,
                spread=spread,
                values=values,
            )
        except ModelError as error:
            # It names the settings that were made of the file, and nobody can fetch those.
            reason = error.message.removesuffix("; fetch the folder again")
            reason = reason.replace(f"{self.folder}/config.json", "its metadata")
            reason = reason.replace(str(self.folder), "it")
            raise ModelError(
                f"{self.path} can't be loaded: {reason}; fetch the file again"
            ) from error
        # transformers leaves out tensors that it has no place for without a word.
        stored = sum(
            tensor.values for tensor in self.file.tensors if tensor.name not in _NOT_PARAMETERS
        )
        loaded = sum(parameter.numel() for parameter in network.parameters())
        if stored != loaded:
            raise ModelError(
                f"{self.path} holds {stored:,} values, but transformers makes a model of "
                f"{loaded:,}, so "
                "its numbers would differ"
            )
        return network

    def __repr__(self) -> str:
        return f"GgufModel({str(self.path)!r}, {self.dtype} on {self.device})"


def open_gguf(file: Path, loading: Loading) -> GgufModel:
    """Return the model in ``file``. Raises ModelError."""
    return GgufModel(file, **loading.options, elsewhere=loading.elsewhere)


def _require_packages(path: Path) -> None:
    """Raise ModelError, with the command, if a package is missing or too old to read GGUF files."""
    for package in PACKAGES["gguf"]:
        if not is_installed(package):
            raise ModelError(
                f"{path.name} needs the package {package}; run: {install_line('gguf')}"
            )
    from transformers.utils import quantization_config

    if not hasattr(quantization_config, "GgufConfig"):
        raise ModelError(
            f"{path.name} needs transformers 5.23 or newer; run: {install_line('gguf')}"
        )
