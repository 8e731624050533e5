"""Serve, work."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from choicewise.cli import options
from choicewise.cli.run import words_of
from choicewise.cli.terminal import end_quietly, progress, show, show_download, tell, watch_end
from choicewise.errors import ChoicewiseError, UsageError
from choicewise.util.text import command_line

if TYPE_CHECKING:
    from choicewise.board.submission_routes import Submissions, Tokens
    from choicewise.board.worker import Outcome


def serve(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", readable=False, help="Folders with runs at any depth.")
    ],
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; others than this machine need a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option("--port", min=1, max=65535, help="Port to listen on; 8470 or a free one.")
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option("--name", help="Further name that readers call the server by. Repeatable.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", readable=False, help="File with the token that readers need; or CHOICEWISE_TOKEN."
        ),
    ] = None,
    submissions: Annotated[
        bool, typer.Option("--submissions", help="Take models that are submitted, for `choicewise work` to evaluate.")
    ] = False,
    protocol: Annotated[
        list[str] | None,
        typer.Option("--protocol", help="What submitted models are asked, as in `choicewise sweep`; mmlu. Repeatable."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", help="On which data; the bundled ones where no protocol is named. Repeatable."),
    ] = None,
    limit: options.Limit = None,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", help="Pattern of models that are taken; bundled:* and */* (on the Hub). Repeatable."),
    ] = None,
    largest: Annotated[
        str | None, typer.Option("--largest", metavar="SIZE", help="Most bytes of a model's weights; 20GB.")
    ] = None,
    queue: Annotated[
        Path | None,
        typer.Option("--queue", readable=False, help="Folder of what was submitted, on a disk of this machine."),
    ] = None,
    submit_token_file: Annotated[
        Path | None,
        typer.Option(
            "--submit-token-file",
            readable=False,
            help="File with the token of who submits; or CHOICEWISE_SUBMIT_TOKEN.",
        ),
    ] = None,
    work_token_file: Annotated[
        Path | None,
        typer.Option(
            "--work-token-file", readable=False, help="File with the token of workers; or CHOICEWISE_WORK_TOKEN."
        ),
    ] = None,
) -> None:
    """Show models by protocols of all runs in a browser: a leaderboard that follows the runs as they come and change.

    Only this machine can read it, unless --host says otherwise. Ctrl-C, SIGTERM and SIGHUP end it, with exit code 0.
    With --submissions people name models on it, workers (`choicewise work`) evaluate them, and their runs come into the
    first DIR.
    """
    from choicewise.board.access import access, is_loopback, read_token

    _check(folders)
    given = {"protocol": protocol, "data": data, "limit": limit, "allow": allow, "largest": largest, "queue": queue}
    given |= {"submit_token_file": submit_token_file, "work_token_file": work_token_file}
    if not submissions:
        options.refuse_without_use("a board without --submissions has", **given)
    token = read_token(token_file)
    if token is None and not is_loopback(host):
        raise UsageError(
            f"{host} can be reached by others: write a token of your own into a file that only you can read, and name "
            "it with --token-file, or put it into the variable CHOICEWISE_TOKEN"
        )
    try:
        import jinja2  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UsageError(f"the board needs {error.name}: pip install 'choicewise[serve]'") from error

    from choicewise.board.library import Library
    from choicewise.board.server import BoardServer, address, listen

    desk = None
    asked = Options(protocol or (), data or (), limit, allow or (), largest, queue, submit_token_file, work_token_file)
    if submissions:
        desk = open_submissions(folders[0], asked, is_loopback(host))
    bound = listen(host, port)
    server = BoardServer(Library(folders), access(host, name or (), token), bound, tell, desk)
    watch_end()
    try:
        server.start()
        show(address(bound))
        sys.stdout.flush()  # who reads it through a pipe or from a file opens it while the board is there
        where = ", ".join(map(str, folders))
        tell(f"the board of all runs below {where}; Ctrl-C ends it")
        if submissions:
            file = asked.file_of_work_token(folders[0])
            work = command_line("work", address(bound), *(("--token-file", file) if file else ()))
            tell(f"models are submitted at {address(bound)}submissions, and evaluated by `{work}`")
        if token is not None:
            tell("readers add ?token= and the token to the address once")
        if not is_loopback(host):
            tell("what is sent is not encrypted; a proxy with TLS in front of it does that")
        server.wait()
    except KeyboardInterrupt:
        tell("ending")
        end_quietly()
    finally:
        server.stop()


def _check(folders: list[Path]) -> None:
    problems = [f"{folder} does not exist" for folder in folders if not folder.exists()]
    problems += [f"{folder} is a file; name the folder" for folder in folders if folder.is_file()]
    if problems:
        raise UsageError.about(problems)


QUEUE = ".submissions"
"""The folder of the queue in the first folder of the board; nobody looks for runs in it."""


@dataclass(frozen=True)
class Options:
    """What was given for submissions; see the command."""

    protocols: Sequence[str]
    data: Sequence[str]
    limit: int | None
    allow: Sequence[str]
    largest: str | None
    queue: Path | None
    submit_token_file: Path | None
    work_token_file: Path | None

    def folder(self, board: Path) -> Path:
        """Where the queue lies."""
        return board / QUEUE if self.queue is None else self.queue

    def file_of_work_token(self, board: Path) -> Path | None:
        """What a worker on this machine names; None where the token comes from the environment."""
        from choicewise.board.submission_routes import WORK

        kept = None if WORK in os.environ else self.folder(board) / "work.token"
        return self.work_token_file or kept


def open_submissions(board: Path, options: Options, loopback: bool) -> Submissions:
    """The submissions of the board in ``board``.  Raises UsageError and StoreError before anything is served."""
    from choicewise.board.protocol import Ask, Desk, make_private
    from choicewise.board.submission import ALLOW, LARGEST, Policy
    from choicewise.board.submission_routes import Submissions
    from choicewise.bundled import BENCHMARK, MODELS, PREFIX
    from choicewise.running.sweep import plan_of

    bundled = () if options.protocols or options.data else (PREFIX + BENCHMARK.name,)
    ask = Ask(tuple(options.protocols) or ("mmlu",), tuple(options.data) or bundled, options.limit)
    plan: dict[str, object] = {"models": [PREFIX + MODELS[0].name], "protocols": [*ask.protocols]}
    plan_of(plan | ({"data": [*ask.data]} if ask.data else {}))  # what is wrong with it is said now, not by a worker
    largest = LARGEST if options.largest is None else parse_size(options.largest)
    queue = options.folder(board)
    make_private(queue)
    tokens = _tokens(queue, options, loopback)
    return Submissions(Desk(board, queue, ask, Policy(tuple(options.allow) or ALLOW, largest)), tokens, tell)


def parse_size(text: str) -> int:
    """Bytes from ``20GB``, ``500 MB`` or ``1.5TB``; UsageError for anything else."""
    from choicewise.util.text import bytes_of

    if (size := bytes_of(text)) < 1:
        raise UsageError(f"--largest is {text!r}; write it as 20GB")
    return size


def _tokens(queue: Path, options: Options, loopback: bool) -> Tokens:
    from choicewise.board.submission_routes import SUBMIT, WORK, Tokens

    submit = _token(queue / "submit.token", "submit", options.submit_token_file, SUBMIT, loopback)
    work = _token(queue / "work.token", "work", options.work_token_file, WORK, loopback)
    if submit == work:
        raise UsageError("the tokens of who submits and of workers are the same; take two")
    return Tokens(submit, work)


def _token(kept: Path, verb: str, file: Path | None, variable: str, loopback: bool) -> str:
    from choicewise.board.access import read_token
    from choicewise.board.submission_routes import kept_token

    who = {"submit": "who submits", "work": "workers"}[verb]
    token = read_token(file, variable)
    if token is not None:
        return token
    if not loopback:
        raise UsageError(
            f"the board can be reached by others and has no token of {who}: write one of your own into a file that "
            f"only you can read, and name it with --{verb}-token-file, or put it into the variable {variable}"
        )
    token, new = kept_token(kept)
    tell(f"the token of {who} {'was written to' if new else 'is in'} {kept}")
    return token


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

    from choicewise.board.client import BoardAddress, BoardClient, read_work_token
    from choicewise.board.worker import Worker, Workplace
    from choicewise.running.workers import Parallel

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
