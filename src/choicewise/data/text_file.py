"""The text of a file, or the place where it is not UTF-8."""

import codecs
from pathlib import Path

from choicewise.errors import DataError


def read_text(path: Path) -> str:
    """The text of a file, line ends unchanged, without the byte order mark that some editors put at its start.

    Raises DataError with the offset and line of the first byte that is not UTF-8, or when the file can't be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from error
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start} (line {line}, from 1);"
            f" save it as UTF-8, for instance with: iconv -f {'utf-16' if wide else 'latin1'} -t utf-8"
        ) from error
