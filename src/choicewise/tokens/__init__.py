"""Texts to tokens and back: tokenizers, where a choice begins, coverings of bytes, chat templates.

``tokenizer.py`` is the interface; a model's own tokenizer is in its room.
"""
