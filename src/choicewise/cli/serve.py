"""``choicewise serve``: the board of all runs below some folders."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from choicewise.cli import options
from choicewise.cli.interrupt import end_quietly, watch_end
from choicewise.cli.output import command_line, show, tell
from choicewise.cli.submissions import Options, open_submissions
from choicewise.errors import UsageError


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
    from choicewise.web.server.access import access, is_loopback
    from choicewise.web.server.token import read_token

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

    from choicewise.web.board.library import Library
    from choicewise.web.server.serve import BoardServer, address, listen

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
