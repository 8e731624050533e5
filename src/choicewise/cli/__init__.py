"""The command line: one thin file per command; results on stdout, notes and progress on stderr.

Exit codes: 0 done, 1 another Choicewise error, 2 wrong use, 3 data, 4 protocol, 5 model, 6 run folder, 130 interrupted.
"""

import atexit
import gc
import os
import sys

from choicewise.cli.interrupt import check_interrupt, end_watch, watch
from choicewise.cli.output import fail, tell
from choicewise.cli.streams import abandon, open_streams
from choicewise.errors import ChoicewiseError


def __getattr__(name: str) -> object:
    if name != "app":
        raise AttributeError(f"module 'choicewise.cli' has no attribute {name!r}")
    from choicewise.cli.commands import app

    return app


def main() -> None:
    """Entry point: an error a user is meant to read becomes a line on stderr and its exit code."""
    open_streams()
    watch()
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # it gives advice on settings that this command lacks
    atexit.register(gc.freeze)  # else collecting garbage in all of torch and transformers takes a second at the end
    try:
        from choicewise.cli.commands import invoke

        code = invoke(sys.argv[1:])
        sys.stdout.flush()
        check_interrupt()
    except KeyboardInterrupt:
        end_watch()
        tell("interrupted; a run that was under way keeps what it observed, and the same command continues it")
        os._exit(130)  # an ordinary end would wait for threads, and may end by signal instead of with this code
    except ChoicewiseError as error:
        fail(error)
    except BrokenPipeError:
        abandon(1)
        sys.exit(0)
    except OSError as error:
        if error.filename is not None:
            fail(ChoicewiseError(f"{error.filename}: {error.strerror}"))
        abandon(1)
        fail(ChoicewiseError(f"the output can't be written: {error.strerror}"))
    finally:
        end_watch()
    sys.exit(code)
