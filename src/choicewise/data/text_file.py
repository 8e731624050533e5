"""The text of a file, or the place where it is not UTF-8."""

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from choicewise.errors import DataError

_PACKED: Final = (b"\x1f\x8b", b"PK\x03", b"\x28\xb5\x2f")
"""How files begin that gzip, zip and zstd wrote."""


def read_text(path: Path) -> str:
    """The text of a file, line ends unchanged, without the byte order mark that some editors put at its start.

    Raises DataError with the offset and line of the first byte that is not UTF-8, or when the file can't be read.
    """
    return "".join(text_lines(path))


def text_lines(path: Path) -> Iterator[str]:
    r"""The same text line by line, each with the ``\n`` that ends it; no other character ends a line.

    Raises DataError as `read_text` does, once it comes to the place.
    """
    offset = 0
    try:
        with path.open("rb") as file:
            start = file.read(len(codecs.BOM_UTF8))
            if start.startswith(_PACKED):
                raise DataError(f"{path} is compressed; unpack it, for instance with: gunzip or unzip")
            file.seek(len(codecs.BOM_UTF8) if start == codecs.BOM_UTF8 else 0)
            offset = file.tell()
            for number, line in enumerate(file, start=1):
                try:
                    yield line.decode()
                except UnicodeDecodeError as error:
                    byte, offset = line[error.start], offset + error.start
                    wide = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
                    raise DataError(
                        f"{path} is not UTF-8: byte 0x{byte:02x} at offset {offset} (line {number}, from 1);"
                        f" save it as UTF-8, for instance with: iconv -f {'utf-16' if wide else 'latin1'} -t utf-8"
                    ) from error
                offset += len(line)
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from error
