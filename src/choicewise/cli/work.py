"""``choicewise work``: a worker that evaluates what is submitted to a board."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from choicewise.cli import options
from choicewise.cli.download import show_download
from choicewise.cli.interrupt import end_quietly, watch_end
from choicewise.cli.output import tell
from choicewise.cli.progress import progress
from choicewise.cli.several import words_of
from choicewise.errors import ChoicewiseError, UsageError

if TYPE_CHECKING:
    from choicewise.submissions.worker import Outcome

NEEDED = ("httpx2", "stamina", "torch", "transformers", "tokenizers", "huggingface_hub")


def work(
    url: Annotated[str, typer.Argument(metavar="URL", help="The board's address, as http://HOST:PORT.")],
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            readable=False,
            help="File with the board's work token, which `choicewise serve` names; or CHOICEWISE_WORK_TOKEN.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", readable=False, help="Folder of what is under way; what the board has is removed.")
    ] = Path("choicewise-work"),
    device: options.Device = None,
    batch_tokens: options.BatchTokens = None,
    executor: options.Executor = options.Kind.local,
    workers: options.Workers = None,
    once: Annotated[bool, typer.Option("--once", help="End when nothing waits, instead of waiting for more.")] = False,
) -> None:
    """Evaluate the models that are submitted to a board, one after another, and send it the results.

    As many workers as you like may work for one board, on any machines that reach it: each submission is one worker's.
    What a worker that died has sent is not computed again. Ctrl-C gives back what is under way.
    """
    if lacking := [package for package in NEEDED if find_spec(package) is None]:
        raise UsageError(f"a worker needs {' and '.join(lacking)}: pip install 'choicewise[work]'")

    from choicewise.running.executors.parallel import Parallel
    from choicewise.submissions.board_address import BoardAddress
    from choicewise.submissions.client import BoardClient
    from choicewise.submissions.job import Workplace
    from choicewise.submissions.work_token import read_work_token
    from choicewise.submissions.worker import Worker

    address = BoardAddress.parse(url)
    token = read_work_token(token_file, tell)
    if address.advice is not None:
        tell(f"note: {address.advice}")
    given: dict[str, Any] = {"device": device, "batch_tokens": batch_tokens}
    place = Workplace(
        out,
        here={name: value for name, value in given.items() if value is not None},
        parallel=Parallel(str(executor), workers),
        say=tell,
        shown=progress,
        download=show_download(),
        command=words_of,
    )
    watch_end()
    with BoardClient(address, token, say=tell) as client:
        worker = Worker(client, place)
        tell(f"works for {address} until nothing waits" if once else f"works for {address}; Ctrl-C ends it")
        told = True
        try:
            worker.work(once)
        except KeyboardInterrupt:
            if once:
                raise
            end_quietly()
        except ChoicewiseError:
            told = bool(worker.outcomes)  # of what it says then, this would be the last word
            raise
        finally:
            if told:
                tell(_summary(worker.outcomes))


def _summary(outcomes: list[Outcome]) -> str:
    """What became of the submissions, in a line."""
    counts = Counter(outcome.end for outcome in outcomes)
    return ", ".join(f"{count} {end}" for end, count in counts.items()) or "nothing waited"
