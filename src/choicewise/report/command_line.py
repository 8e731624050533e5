"""Command lines that people can copy into a shell."""

import os
import shlex
from pathlib import Path


def command_line(*words: str | Path) -> str:
    """``choicewise`` with these arguments, quoted so that a shell reads them as they are."""
    return " ".join(["choicewise", *map(quoted, words)])


def quoted(word: str | Path) -> str:
    """One word as a shell reads it; paths that begin with a hyphen begin with ``./``, controls are spelled out."""
    text = f"./{word}" if isinstance(word, Path) and str(word).startswith("-") else str(word)
    if text.isprintable():
        return shlex.quote(text)
    spelled = (chr(byte) if chr(byte).isalnum() and byte < 0x80 else f"\\x{byte:02x}" for byte in os.fsencode(text))
    return f"$'{''.join(spelled)}'"
