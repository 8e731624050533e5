"""The options of `choicewise serve` that let a board take submissions, and what follows from them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from choicewise.cli.output import tell
from choicewise.errors import UsageError

if TYPE_CHECKING:
    from choicewise.web.submissions.routes import Submissions
    from choicewise.web.submissions.tokens import Tokens

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
        from choicewise.web.submissions.tokens import WORK

        kept = None if WORK in os.environ else self.folder(board) / "work.token"
        return self.work_token_file or kept


def open_submissions(board: Path, options: Options, loopback: bool) -> Submissions:
    """The submissions of the board in ``board``.  Raises UsageError and StoreError before anything is served."""
    from choicewise.bundled import BENCHMARK, MODELS, PREFIX
    from choicewise.running.sweep_plan import plan_of
    from choicewise.submissions.desk import Ask, Desk, make_private
    from choicewise.submissions.policy import ALLOW, LARGEST, Policy
    from choicewise.web.submissions.routes import Submissions

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
    from choicewise.running.size import bytes_of

    if (size := bytes_of(text)) < 1:
        raise UsageError(f"--largest is {text!r}; write it as 20GB")
    return size


def _tokens(queue: Path, options: Options, loopback: bool) -> Tokens:
    from choicewise.web.submissions.tokens import SUBMIT, WORK, Tokens

    submit = _token(queue / "submit.token", "submit", options.submit_token_file, SUBMIT, loopback)
    work = _token(queue / "work.token", "work", options.work_token_file, WORK, loopback)
    if submit == work:
        raise UsageError("the tokens of who submits and of workers are the same; take two")
    return Tokens(submit, work)


def _token(kept: Path, verb: str, file: Path | None, variable: str, loopback: bool) -> str:
    from choicewise.web.server.token import read_token
    from choicewise.web.submissions.tokens import kept_token

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
