"""Declare the format of llama.cpp's models, GGUF."""

from __future__ import annotations

from choicewise.ports import Extension, ModelFile, calls


class Gguf(ModelFile):
    """``FILE.gguf``: quantised weights with their settings and tokenizer."""

    name = "gguf"
    summary = "a model of llama.cpp"
    is_part = calls("choicewise.extensions.gguf.gguf_file:is_part")
    open = calls("choicewise.extensions.gguf.gguf_model:open_gguf")


EXTENSION = Extension("gguf", [Gguf()])
