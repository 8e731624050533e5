"""Many files that lines are added to by turns."""

from pathlib import Path
from types import TracebackType

MOST = 8_000_000
"""Characters that wait in memory."""


class LineFiles:
    """Lines that wait in memory until they are many, and are then added to their files, one file open at a time."""

    def __init__(self) -> None:
        self._waiting: dict[Path, list[str]] = {}
        self._length = 0

    def add(self, file: Path, line: str) -> None:
        """Add a ``line``, without its end, to the ``file``."""
        self._waiting.setdefault(file, []).append(f"{line}\n")
        self._length += len(line)
        if self._length > MOST:
            self._write()

    def __enter__(self) -> "LineFiles":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._write()

    def _write(self) -> None:
        for file, lines in self._waiting.items():
            with file.open("a", encoding="utf-8", newline="\n") as stream:
                stream.writelines(lines)
        self._waiting.clear()
        self._length = 0
