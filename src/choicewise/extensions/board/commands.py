"""Run the commands serve and work."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options
from choicewise.cli.options import grouped
from choicewise.cli.terminal import end_quietly, progress, show, show_download, tell, watch_end
from choicewise.errors import UsageError, install_line
from choicewise.util.jsonio import JsonDict
from choicewise.util.text import command_line, listed

if TYPE_CHECKING:
    from choicewise.extensions.board.queue import Asked, SubmissionService
    from choicewise.extensions.board.worker import Outcome


@dataclass(frozen=True)
class Submitting:
    """Hold the options of submissions: how submitted models are evaluated, and who may submit which."""

    protocol: Annotated[
        list[str] | None,
        typer.Option(
            "--protocol",
            help="Protocols for submitted models, as in `choicewise sweep` (default: those of "
            "the runs in DIR). Repeatable.",
        ),
    ] = None
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            help="Data for submitted models (default: those of the runs in DIR). Repeatable.",
        ),
    ] = None
    limit: options.Limit = None
    sample: options.Sample = None
    seed: options.Seed = None
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            help="Pattern of models to accept (default: bundled:* and */*, any on the Hub). "
            "Repeatable.",
        ),
    ] = None
    largest: Annotated[
        str | None,
        typer.Option(
            "--largest", metavar="SIZE", help="Largest size of a model's weights (default: 20GB)."
        ),
    ] = None
    queue: Annotated[
        Path | None,
        typer.Option(
            "--queue",
            readable=False,
            help="Folder of the submissions, on a local disk.",
        ),
    ] = None
    submit_token_file: Annotated[
        Path | None,
        typer.Option(
            "--submit-token-file",
            readable=False,
            help="File with the token for submitting (or set CHOICEWISE_SUBMIT_TOKEN).",
        ),
    ] = None


@grouped
def serve(
    *,
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", readable=False, help="Folders with runs at any depth."),
    ],
    host: Annotated[
        str,
        typer.Option(
            "--host", help="Address to listen on; any other than this machine needs a token."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=1, max=65535, help="Port to listen on (default: 8470, or a free one)."
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", help="Another host name of this server. Repeatable."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            readable=False,
            help="File with the token for reading (or set CHOICEWISE_TOKEN).",
        ),
    ] = None,
    metric: options.Metrics = None,
    submissions: Annotated[
        bool,
        typer.Option(
            "--submissions",
            help="Accept submitted models, for `choicewise work` to evaluate.",
        ),
    ] = False,
    submitting: Submitting,
) -> None:
    """Show a board of all runs in a browser, updated as the runs change.

    Only this machine can read it unless you set --host. Ctrl-C, SIGTERM and SIGHUP stop it with exit
    code 0. With --metric it has more metrics. With --submissions people can submit models, and workers
    (`choicewise work DIR`) evaluate them into the first DIR.
    """
    from choicewise.extensions.board.access import access, is_loopback, read_token

    _check(folders)
    if metric is not None:
        from choicewise.protocols.between import check_metrics

        check_metrics(metric)
    # Options without use are refused, as somebody relies on what they say.
    if not submissions:
        options.refuse_without_use("a board without --submissions", **vars(submitting))
    token = read_token(token_file)
    if token is None and not is_loopback(host):
        raise UsageError(
            f"{host} can be reached by others: write a token into a file that only you "
            "can read and name it with --token-file, or set CHOICEWISE_TOKEN"
        )
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UsageError(f"the board needs {error.name}: {install_line('serve')}") from error

    from choicewise.extensions.board.library import Library
    from choicewise.extensions.board.server import BoardServer, address, listen
    from choicewise.page.embed import check_libraries

    check_libraries("serve")
    service = None
    submit = None
    if submissions:
        service, submit = open_submissions(folders[0], is_loopback(host), submitting)
    # The port is taken before anything is read, so that a second server ends at once.
    bound = listen(host, port)
    server = BoardServer(
        Library(folders, metrics=metric or ()),
        access(host, name or (), token, submit),
        bound,
        tell,
        service,
    )
    watch_end()
    try:
        server.start()
        show(address(bound))
        sys.stdout.flush()  # who reads it through a pipe or from a file opens it while the board is there
        where = ", ".join(map(str, folders))
        tell(f"the board of all runs below {where}; Ctrl-C stops it")
        if submissions:
            words: list[str | Path] = ["work", folders[0]]
            if submitting.queue:
                words += ["--queue", submitting.queue]
            work = command_line(*words)
            tell(f"submit models at {address(bound)}submissions; evaluate them with `{work}`")
        if token is not None:
            tell("readers add ?token= and the token to the address once")
        if not is_loopback(host):
            tell("the connection is not encrypted; put a proxy with TLS in front of it")
        server.wait()
    except KeyboardInterrupt:
        tell("ending")
        end_quietly()
    finally:
        server.stop()


def _check(folders: list[Path]) -> None:
    problems = [f"{folder} does not exist" for folder in folders if not folder.exists()]
    problems += [f"{folder} is a file; name a folder" for folder in folders if folder.is_file()]
    if problems:
        raise UsageError.of_problems(problems)


def open_submissions(
    board: Path, loopback: bool, given: Submitting
) -> tuple[SubmissionService, str]:
    """Return the submissions of the board in ``board``, and the token of submitters.

    The token is the one that was given, or on loopback one that is stored. Raises UsageError and StoreError before
    anything is served.
    """
    from choicewise.extensions.board.queue import (
        QUEUE_FOLDER,
        SubmissionService,
        make_private,
    )
    from choicewise.running.job import job_of, sources_of

    evaluation = _asked(board, given)
    sources_of(job_of(evaluation.plan()))  # what is wrong is said now, not by a worker
    queue = given.queue or board / QUEUE_FOLDER
    # Submissions may be of models that are not public yet.
    make_private(queue)
    return SubmissionService.begin(board, queue, evaluation), _submit_token(queue, loopback, given)


def _asked(board: Path, given: Submitting) -> Asked:
    """Return how submitted models are evaluated: as the options say, or else as the runs of the board were."""
    from choicewise.bundled import BENCHMARK, PREFIX
    from choicewise.extensions.board.library import AskedThere, asked_there
    from choicewise.extensions.board.queue import Asked
    from choicewise.extensions.board.submission import ALLOW, LARGEST, Policy

    is_given = bool(given.protocol or given.data)
    there = AskedThere()
    data = tuple(given.data or ())
    if not is_given:
        there = asked_there(board)
        data = there.data
        if not there.runs:
            data = (PREFIX + BENCHMARK.name,)
    limit, sample, seed = given.limit, given.sample, given.seed
    # A part that was named in half would mix two selections.
    if limit is None and sample is None and seed is None:
        limit, sample, seed = there.limit, there.sample, there.seed
    largest = LARGEST
    if given.largest is not None:
        largest = parse_size(given.largest)
    evaluation = Asked(
        protocols=tuple(given.protocol or there.protocols or ("mmlu",)),
        data=data,
        limit=limit,
        policy=Policy(tuple(given.allow or ALLOW), largest),
        sample=sample,
        seed=seed,
    )
    if not is_given:
        line = f"submitted models run under {listed(evaluation.protocols)}"
        if evaluation.data:
            line += f" on {listed(evaluation.data)}"
        if there.runs:
            line += " (from the runs in this folder)"
        tell(f"{line}; --protocol changes it")
    return evaluation


def _submit_token(queue: Path, loopback: bool, given: Submitting) -> str:
    from choicewise.extensions.board.access import SUBMIT, read_token, stored_token

    token = read_token(given.submit_token_file, SUBMIT)
    if token is not None:
        return token
    if not loopback:
        raise UsageError(
            "the board can be reached by others, but submitting needs no token: write "
            "one into a file that only you can read and name it with "
            f"--submit-token-file, or set {SUBMIT}"
        )
    file = queue / "submit.token"
    token, is_new = stored_token(file)
    verb = "was written to" if is_new else "is in"
    tell(f"the token for submitting {verb} {file}")
    return token


def parse_size(text: str) -> int:
    """Return the bytes of ``20GB``, ``500 MB`` or ``1.5TB``; UsageError for anything else."""
    from choicewise.util.text import bytes_of

    size = bytes_of(text)
    if size < 1:
        raise UsageError(f"--largest is {text!r}; write it as 20GB")
    return size


NEEDED = ("torch", "transformers", "tokenizers", "huggingface_hub")


def work(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", readable=False, help="The folder of a board with --submissions."
        ),
    ],
    queue: Annotated[
        Path | None,
        typer.Option(
            "--queue", readable=False, help="Folder of the submissions, as for `choicewise serve`."
        ),
    ] = None,
    device: options.Device = None,
    batch_tokens: options.BatchTokens = None,
    once: Annotated[
        bool, typer.Option("--once", help="Stop when no submission waits (default: wait for more).")
    ] = False,
) -> None:
    """Evaluate the models that are submitted to a board, one after another.

    Run it on the machine that has the folder. Several workers can run in parallel, such as one per GPU
    (CUDA_VISIBLE_DEVICES=0 choicewise work DIR). If a worker dies, another one resumes its run. Ctrl-C
    returns the current submission to the queue.
    """
    lacking = [package for package in NEEDED if find_spec(package) is None]
    if lacking:
        raise UsageError(f"a worker needs {' and '.join(lacking)}: {install_line('hf')}")

    from choicewise.extensions.board.queue import QUEUE_FOLDER, SubmissionService
    from choicewise.extensions.board.worker import Worker, Workplace

    if folder.parts and folder.parts[0] in ("http:", "https:"):
        raise UsageError(
            f"{folder} is an address; run the worker on the machine of the board and name its "
            "folder"
        )
    _check([folder])
    loading: JsonDict = {"device": device, "batch_tokens": batch_tokens}
    workplace = Workplace(
        here={name: value for name, value in loading.items() if value is not None},
        say=tell,
        shown=progress,
        download=show_download(),
    )
    watch_end()
    service = SubmissionService.join(folder, queue or folder / QUEUE_FOLDER)
    worker = Worker(service, workplace)
    end = "; Ctrl-C stops it"
    if once:
        end = " until no submission waits"
    tell(f"works for the board of {folder}{end}")
    try:
        worker.work(once)
    except KeyboardInterrupt:
        if once:
            raise
        end_quietly()
    finally:
        service.close()
        tell(_summary(worker.outcomes))


def _summary(outcomes: list[Outcome]) -> str:
    """Count in a line how the submissions ended."""
    counts = Counter(outcome.end for outcome in outcomes)
    return ", ".join(f"{count} {end}" for end, count in counts.items()) or "nothing waited"
