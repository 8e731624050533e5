"""A worker's requests to a board: JSON and parts of runs, made again while a fault may heal."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from choicewise import __version__
from choicewise.board.submission import Lacking, LeaseLost, Policy, Wanted, wanted
from choicewise.errors import ChoicewiseError, UsageError
from choicewise.models.server.address import HidingLog, Key, ServerAddress, quoted, url_objection
from choicewise.models.server.http import Passing, ServerFailed, Unanswerable, Waits, healed, of_error, retry_after

LONGEST: Final = 2000
"""Characters of a reason."""

CONNECT: Final = 10.0
"""Seconds to a connection."""

FINISHING: Final = 900.0
"""Seconds that a board may take to examine what was sent."""

MOST_BYTES: Final = 2**31
"""Bytes of an answer beyond which it is refused."""

_BUSY: Final = {408, 425, 429, 502, 503, 504}


class BoardClient:
    """Asks the board at ``address``; may be used by several threads.

    ``token`` is sent as ``Authorization: Bearer`` and shown nowhere.  ``timeout``: seconds that the board may be
    silent; ``patience``: seconds after which no request is made again, unless a call says otherwise.  ``say`` gets a
    line now and then while the board is waited for, from any thread.  Redirects are not followed.  A board on this
    machine is reached directly; to others the proxies of the environment apply, as does ``SSL_CERT_FILE``.

    Every call raises BoardFailed where the board can't do it (:mod:`choicewise.board.client`), and those
    about a submission LeaseLost where that is not this worker's any more.
    """

    def __init__(
        self,
        address: BoardAddress,
        token: str,
        *,
        timeout: float = 60.0,
        patience: float = 600.0,
        transport: httpx2.BaseTransport | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.address, self.timeout, self.patience = address, timeout, patience
        self._key = Key(token)
        del token  # so that no traceback shows it among the variables of this call
        self._log, self._waits, self._ended = HidingLog(self._key), _waits(say), False
        try:
            self._http = httpx2.Client(
                headers={"Authorization": self._key.header, "User-Agent": f"choicewise/{__version__}"},
                trust_env=not address.is_loopback,
                follow_redirects=False,
                transport=transport,
            )
        except (httpx2.InvalidURL, ValueError, ImportError, OSError):
            raise BoardFailed(
                "a proxy or certificate that the environment names can't be used; check HTTP_PROXY, HTTPS_PROXY,"
                " ALL_PROXY and SSL_CERT_FILE"
            ) from None

    def __repr__(self) -> str:
        return f"BoardClient({self.address.url!r})"

    def __enter__(self) -> BoardClient:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()

    def close(self) -> None:
        """End every connection; no request is made again."""
        self._ended = True
        self._http.close()
        self._log.end()

    def lease(self, worker: str, patience: float | None = None) -> LeasedWork | None:
        """The next submission that waits, for the worker of this name; None where none does."""
        answer = self._json("POST", "work/lease", {"worker": worker, "version": __version__}, patience=patience)
        return None if answer is None else LeasedWork.parse(answer)

    def renew(self, work: LeasedWork, done: int, total: int, patience: float = 0.0) -> float:
        """Keep the lease for so many seconds more, and say how much of the work is done."""
        answer = self._json(
            "POST", f"work/{work.id}/renew", {"lease": work.lease, "done": done, "total": total}, patience=patience
        )
        try:
            return float((answer or {})["seconds"])
        except (KeyError, TypeError, ValueError):
            return work.seconds

    def put(self, work: LeasedWork, content: bytes, patience: float | None = None) -> str:
        """Send one part; its sha256 (hex)."""
        sha = hashlib.sha256(content).hexdigest()
        self._ask("PUT", f"work/{work.id}/part/{sha}", content, {"X-Lease": work.lease}, patience)
        return sha

    def get(self, work: LeasedWork, sha: str) -> bytes:
        """The part of this sha256; BoardFailed where the board has another content under that name."""
        content = self._ask("GET", f"work/{work.id}/part/{sha}", None, {"X-Lease": work.lease})[1]
        if hashlib.sha256(content).hexdigest() != sha:
            raise NotTaken(f"{self.address}: part {sha[:12]} has another content")
        return content

    def list_files(self, work: LeasedWork, files: Mapping[str, str], patience: float | None = None) -> None:
        """Say which files there are now: relative path → sha256.  Lacking where some were not sent."""
        self._json("POST", f"work/{work.id}/files", {"lease": work.lease, "files": dict(files)}, patience=patience)

    def finish(self, work: LeasedWork) -> None:
        """All files that were listed are all there is to compute."""
        self._json("POST", f"work/{work.id}/finish", {"lease": work.lease}, timeout=FINISHING)

    def fail(
        self, work: LeasedWork, reason: str, again: bool, patience: float | None = None, counts: bool = True
    ) -> None:
        """Give the submission back: to be tried ``again``, or failed for this reason; ``counts`` as an attempt."""
        said = self._key.hidden(reason)[:LONGEST]
        body = {"lease": work.lease, "reason": said, "again": again, "counts": counts}
        self._json("POST", f"work/{work.id}/fail", body, patience=patience)

    def _json(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any],
        patience: float | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any] | None:
        """The object that the board answers; None where it answers with nothing."""
        content = json.dumps(body, allow_nan=False).encode("ascii")
        status, answer = self._ask(method, path, content, {"Content-Type": "application/json"}, patience, timeout)
        if status == 204:
            return None
        try:
            parsed = json.loads(answer)
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            raise BoardFailed(self._no_board(status))
        return parsed

    def _ask(
        self,
        method: str,
        path: str,
        content: bytes | None,
        headers: Mapping[str, str],
        patience: float | None = None,
        timeout: float | None = None,
    ) -> tuple[int, bytes]:
        """Status 2xx and body; the request may be made several times."""
        most = self.patience if patience is None else patience
        try:
            answer = healed(
                lambda: self._once(method, path, content, headers, timeout or self.timeout),
                most,
                self._waits.hear,
                lambda: self._ended,
            )
        except (ServerFailed, Unanswerable) as error:
            failure = OutOfReach(f"{self.address}: {error}")
        else:
            self._waits.answered()
            return answer
        raise failure

    def _once(
        self, method: str, path: str, content: bytes | None, headers: Mapping[str, str], timeout: float
    ) -> tuple[int, bytes]:
        """One try.  Faults are raised where no other exception is handled, so that no address hangs on them."""
        fault: Exception
        try:
            with self._http.stream(
                method,
                self.address.at(path),
                content=content,
                headers=dict(headers),
                timeout=httpx2.Timeout(timeout, connect=min(timeout, CONNECT)),
            ) as response:
                body = bytearray()
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > MOST_BYTES:
                        raise BoardFailed(f"{self.address}: the answer has more than {MOST_BYTES:,} bytes")
                status, wait = response.status_code, response.headers.get("Retry-After")
                plain = response.headers.get("Content-Type", "").startswith("text/plain")
            if status in (200, 201, 204):
                return status, bytes(body)
            said = _said(bytes(body), plain)
            fault = self._fault(path, status, said, retry_after(wait, datetime.now(UTC)))
        except httpx2.HTTPError as error:
            fault = _of_board(of_error(error, timeout, self.address.is_proxied))
        except (httpx2.InvalidURL, httpx2.StreamError, RuntimeError) as error:  # RuntimeError: the client is closed
            fault = BoardFailed(f"{self.address}: the request can't be sent ({type(error).__name__})")
        raise fault.with_traceback(None)

    def _fault(self, path: str, status: int, said: Mapping[str, Any], wait: float | None) -> Exception:
        """What an answer of another status is that ``said`` this."""
        words, lacking = said.get("error"), said.get("lacking")
        about = f"status {status}" + (f": {quoted(words, self._key, 400)}" if isinstance(words, str) else "")
        leased, part = path.count("/") > 1, "/part/" in path
        if status in _BUSY:
            return Passing(f"the board is busy, {about}", status, wait=wait, tries=None)
        if status in (401, 403, 407):
            return BoardFailed(
                f"{self.address} refuses the work token ({about}); take the one in the file that `choicewise serve`"
                " names when it starts"
            )
        if status == 409 and isinstance(lacking, list):
            return Lacking(tuple(map(str, lacking)))
        if leased and (status == 409 or (status == 404 and words and not part)):
            return LeaseLost(str(words or "the lease is lost"))
        if status == 507:
            return BoardFull(f"{self.address}: its disk is full ({about}); free some space there")
        if status >= 500:
            return Passing(f"the board fails, {about}", status, wait=wait)
        if words is None or status == 405:
            return BoardFailed(self._no_board(status))
        if status == 421:
            return BoardFailed(f"{self.address}: {about}")
        return NotTaken(f"{self.address}: {about}")

    def _no_board(self, status: int) -> str:
        return (
            f"{self.address} does not answer as a board does that takes submissions (status {status}); check the"
            " address, and that `choicewise serve` was started there with submissions"
        )


def _waits(say: Callable[[str], None]) -> Waits:
    return Waits(say, named="the board", advice="Ctrl-C gives back what is under way")


def _of_board(fault: Exception) -> Exception:
    """The same of a board, for which only time bounds the waiting: it may be started again meanwhile."""
    words = str(fault).replace("the server", "the board")
    return Passing(words, tries=None) if isinstance(fault, Passing) else BoardFailed(words)


def _said(body: bytes, plain: bool) -> Mapping[str, Any]:
    """The object in the body of an error, or its text where it is ``plain``; nothing where it is a page."""
    if plain:
        return {"error": body[:2000].decode(errors="replace")}
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    return said if isinstance(said, dict) else {}


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


_FORM: Final = "http://HOST:PORT"


@dataclass(frozen=True)
class BoardAddress:
    """``url``: http or https, without credentials, query, fragment and a slash at its end."""

    url: str

    @classmethod
    def parse(cls, text: str) -> BoardAddress:
        """The address that ``text`` spells; UsageError, which repeats no secret in it, where it can't be one."""
        if objection := _objection(text):
            raise UsageError(f"the board's address: {objection}")
        parts = urlsplit(text)
        return cls(f"{parts.scheme.lower()}://{parts.netloc.lower()}{parts.path.rstrip('/')}")

    def __str__(self) -> str:
        return self.url

    def at(self, path: str) -> str:
        """The URL of ``path``, which begins without a slash."""
        return f"{self.url}/{path}"

    @property
    def is_loopback(self) -> bool:
        """Whether the board is on this machine, so that no proxy may come in between."""
        return ServerAddress(self.url).is_loopback

    @property
    def is_proxied(self) -> bool:
        """Whether the environment names a proxy that requests go through."""
        return ServerAddress(self.url).is_proxied

    @property
    def advice(self) -> str | None:
        """What to say of a way on which others could read the token; None where nobody can."""
        if self.is_loopback or self.url.startswith("https:"):
            return None
        host = urlsplit(self.url).hostname
        return (
            f"what goes to {host} is not encrypted, the token included: use https:// and a proxy with TLS there, or"
            f" `ssh -L 8470:localhost:PORT {host}` and http://localhost:8470 here"
        )


def _objection(text: str) -> str | None:
    """Why ``text`` is no address; None where it is one."""
    if "@" in text:
        return "it must not hold credentials (an @); the token comes from a file or the environment"
    if "?" in text or "#" in text:
        return f"it must not hold a query or a fragment (? or #); the form is {_FORM}"
    return url_objection(text, _FORM)


class BoardFailed(ChoicewiseError):
    """The board does not answer as asked, and another try is of no use now; what was computed stays on this machine."""


class OutOfReach(BoardFailed):
    """The board could not be reached, or was too busy, for as long as was waited."""


class BoardFull(BoardFailed):
    """The board's disk is full."""


class NotTaken(BoardFailed):
    """The board does not take what was sent."""


VARIABLE: Final = "CHOICEWISE_WORK_TOKEN"


def read_work_token(file: Path | None, say: Callable[[str], None]) -> str:
    """The token in ``file``, else in the environment; ``say`` hears of a file that others on this machine can read.

    Raises UsageError, which does not tell the token, where there is none or it is no line of plain characters.
    """
    if file is None:
        token, where = os.environ.get(VARIABLE, "").strip(), f"the variable {VARIABLE}"
        if not token:
            raise UsageError(
                f"a worker needs the board's work token: name the file with it, or set {VARIABLE};"
                " `choicewise serve` says where it wrote the file"
            )
    else:
        where = str(file)
        try:
            token = file.read_text(encoding="utf-8").strip()
            mode = file.stat().st_mode
        except OSError as error:
            raise UsageError(f"{file} can't be read: {error.strerror}; name the file with the work token") from error
        except ValueError as error:
            raise UsageError(f"{file} is no text; name the file with the work token") from error
        if mode & (stat.S_IRGRP | stat.S_IROTH):
            say(f"note: others on this machine can read {file}; run `chmod 600 {shlex.quote(str(file))}`")
    if not token:
        raise UsageError(f"{where} is empty; it must hold the board's work token")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"the token in {where} must be one line of letters, digits and signs, without spaces")
    return token


def check_worker_version(version: str) -> None:
    """UsageError for a worker of another major ``version`` than the board's, or of none: its runs may differ."""
    own = __version__.partition(".")[0]
    if version.partition(".")[0] == own:
        return
    said = f"runs Choicewise {version[:40]}" if version else "does not say which Choicewise it runs"
    raise UsageError(
        f"this worker {said}, and the board runs {__version__}: runs of another major version may differ; on the worker"
        f" run: pip install 'choicewise[work]=={own}.*'"
    )
