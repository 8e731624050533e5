"""What takes seconds, made in a process of its own: ``python -m choicewise.web.board.apart KIND FOLDER [ADDRESS]``.

Drawing charts holds all threads of a process up, and takes memory that goes back with the process.  The result stands
on stdout; an error is a line on stderr, and the exit code is 1.
"""

import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

from choicewise.errors import ChoicewiseError
from choicewise.report.visible_text import safe

_MODULE = "choicewise.web.board.apart"


class Apart:
    """Makes one thing after the other, each in a process, the last of which can be ended."""

    def __init__(self) -> None:
        self._process: Popen[bytes] | None = None
        self._ended = False

    def make(self, kind: str, folder: Path, address: str = "") -> str:
        """The document or the strip of the run in ``folder``.  ChoicewiseError with the reason where there is none."""
        if self._ended:
            raise ChoicewiseError("the board is closed")
        command = [sys.executable, "-m", _MODULE, kind, str(folder.absolute()), address]
        with Popen(command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True) as process:
            self._process = process
            made, told = process.communicate()
        if process.returncode:
            lines = told.decode("utf-8", "replace").strip().splitlines()
            raise ChoicewiseError(lines[-1] if lines else "the process that makes it was ended")
        return made.decode("utf-8", "surrogatepass")

    def end(self) -> None:
        """Make nothing more."""
        self._ended = True
        if self._process is not None and self._process.poll() is None:
            self._process.kill()


def main() -> None:
    """Make what the arguments say."""
    kind, folder, address = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    try:
        made = _made(kind, folder, address)
    except ChoicewiseError as error:
        sys.exit(safe(error.message))  # on stderr, with exit code 1
    sys.stdout.buffer.write(made.encode("utf-8", "surrogatepass"))


def _made(kind: str, folder: Path, address: str) -> str:
    if kind == "strip":
        from choicewise.web.board.run_strip import run_strip

        return run_strip(folder)
    from choicewise.web.board.run_document import run_document

    return run_document(folder, address)


if __name__ == "__main__":
    main()
