"""Read the weights of a GGUF file as plain numbers, under the names and in the layout of
transformers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType, dequantize
from transformers.modeling_gguf_pytorch_utils import (
    TENSOR_PROCESSORS,
    TensorProcessor,
    get_gguf_hf_weights_map,
)

from choicewise.errors import ModelError
from choicewise.extensions.gguf.gguf_file import SERVE_IT, GgufFile, Tensor

_PROCESSED = (
    # Where transformers' processors put what they join of several tensors.
    "tensors"
)


def read_values(file: GgufFile, folder: Path) -> dict[str, torch.Tensor]:
    """Return the float32 values of ``file`` by transformers' name; ``folder`` holds the
    configuration.

    Tensors are read one after the other, so that no more than one is there twice.  Raises
    ModelError if transformers has no names for the architecture.
    """
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    with torch.device("meta"):
        skeleton = getattr(transformers, config.architectures[0])(config)
    processor = TENSOR_PROCESSORS.get(file.architecture, TensorProcessor)(config=config.to_dict())
    try:
        names = get_gguf_hf_weights_map(skeleton, processor)
    except NotImplementedError as error:
        raise ModelError(
            f"transformers can't name the weights of {file.path.name} ({error}); {SERVE_IT}"
        ) from error
    content = np.memmap(file.path, mode="r", dtype=np.uint8)
    parsed: dict[str, dict[str, Any]] = {_PROCESSED: {}}
    for tensor in file.tensors:
        try:
            values = _plain(content, file.start, tensor)
            processed = processor.process(
                weights=values, name=tensor.name, tensor_key_mapping=names, parsed_parameters=parsed
            )
        except (NotImplementedError, ValueError) as error:
            raise ModelError(
                f"the tensor {tensor.name[:80]!r} of {file.path} can't be read ({error}); "
                f"{SERVE_IT}"
            ) from error
        if processed.name in names:
            weights = np.ascontiguousarray(processed.weights)
            parsed[_PROCESSED][names[processed.name]] = torch.from_numpy(weights)
    return parsed[_PROCESSED]


def _plain(content: Any, start: int, tensor: Tensor) -> Any:
    """Return the values of ``tensor`` in float32."""
    begin = start + tensor.offset
    rows = tensor.shape[:-1]
    packed = content[begin : begin + tensor.bytes].reshape(*rows, -1)
    values = dequantize(packed, GGMLQuantizationType[tensor.kind]).reshape(tensor.shape)
    if values.flags.writeable:
        return values
    # Float32 in the file: a view of it, which torch must not write to.
    return values.copy()
