"""What a worker is given to do, as a board says it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from choicewise.errors import UsageError
from choicewise.submissions.board_faults import BoardFailed
from choicewise.submissions.policy import Policy
from choicewise.submissions.submission import Wanted, wanted

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_SHA: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class LeasedWork:
    """A submission under a lease.

    ``id``: of the submission; ``wanted``: what was submitted.  ``lease``: the secret that says who has it; ``seconds``:
    how long it holds from the answer on unless it is renewed.  ``ask``: what is asked of the model, with keys of a
    sweep's plan.  ``policy``: which models are taken.  ``files``: relative path → sha256 (hex) of what earlier workers
    sent.
    """

    id: str
    wanted: Wanted
    lease: str = field(repr=False)
    seconds: float
    ask: Mapping[str, Any]
    policy: Policy
    files: Mapping[str, str]

    @classmethod
    def parse(cls, answer: Mapping[str, Any]) -> LeasedWork:
        """What the board's ``answer`` says; BoardFailed where it is no such answer."""
        try:
            submission, policy = answer["submission"], answer["policy"]
            work: LeasedWork | None = cls(
                id=_text(submission["id"]),
                wanted=wanted(submission["model"], submission.get("revision"), submission.get("dtype")),
                lease=_text(answer["lease"]),
                seconds=float(answer["seconds"]),
                ask=dict(answer["ask"]),
                policy=Policy(tuple(map(_text, policy["allow"])), int(policy["largest"])),
                files={_text(path): _text(sha) for path, sha in dict(answer.get("files") or {}).items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError, UsageError):
            work = None
        if work is None or not _ID.fullmatch(work.id) or not all(map(_SHA.fullmatch, work.files.values())):
            raise BoardFailed(
                "the board's answer is no submission that this version knows; run the same Choicewise there"
            )
        return work


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError("no text")
    return value
