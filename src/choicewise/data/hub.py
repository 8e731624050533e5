"""The Hub: snapshots of repositories, and what goes wrong on the way to it in words.

Everything that ``huggingface_hub`` raises becomes an error that says what to do.  Nothing of its messages is repeated:
they hold addresses, and addresses hold secrets.  That the Hub is out of reach is remembered for a while, so that the
second benchmark of a suite is not asked for in vain as the first was.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from glob import escape
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from choicewise.errors import ChoicewiseError, DataError, ModelError, install_line
from choicewise.util.background import in_time

REMEMBERED: Final = 60.0  # seconds that an answer holds: a notebook outlives a network that is down
_answers: dict[str, tuple[float, str]] = {}
Result = TypeVar("Result")
_LOGS: Final = (
    "huggingface_hub",
    "httpx2",
    "httpcore2",
)  # loggers that name addresses, which may be signed
_TRIES: Final = 4  # how often the Hub is asked what it was too busy to answer
_BUSY: Final = (429, 500, 502, 503, 504)  # what a server answers that may answer later
PATIENCE: Final = 60  # seconds that a server may ask to wait
_CARRY: Final = "copy the cache (HF_HOME) from a machine that has it"


@dataclass(frozen=True)
class Kind:
    """What a repository holds and is asked for: the Hub's word, where its page lies, the error when it can't be had.

    ``has_index``: whether all of it is there shows without the Hub's listing.  ``first``: what was looked for before
    the Hub was asked.
    """

    name: str
    path: str
    error: type[ChoicewiseError]
    has_index: bool
    first: str = ""


@dataclass(frozen=True)
class HubName:
    """A repository, a configuration of it (datasets have several), and a branch, tag or commit; None where not said."""

    repository: str
    config: str | None = None
    revision: str | None = None

    def __str__(self) -> str:
        config, revision = self.config and f":{self.config}", self.revision and f"@{self.revision}"
        return f"{self.repository}{config or ''}{revision or ''}"


Download = Callable[[str, int, int], None]
"""Is called with (name, bytes done, bytes in all) while files are downloaded, from any thread."""


@dataclass(frozen=True)
class Snapshot:
    """A repository at one commit.

    ``files``: path → size in bytes of everything in it, downloaded or not; ``folder``: where downloaded files lie, by
    the same paths.
    """

    name: HubName
    kind: Kind
    commit: str
    files: Mapping[str, int]
    folder: Path

    @property
    def source(self) -> str:
        """What was read, once and for all: the repository, the configuration where one was named, and the commit."""
        return str(HubName(self.name.repository, self.name.config, self.commit))

    def download(self, paths: Collection[str], progress: Download | None = None) -> list[Path]:
        """The files of these ``paths`` on this machine, in order; those in the cache are not fetched again.

        Raises the kind's error when one can't be had.
        """
        lacking = {path: self.files[path] for path in paths if not (self.folder / path).is_file()}
        if lacking:
            # in a terminal the bars of the package itself, which are None
            bars = None if sys.stderr.isatty() else _Silent
            if progress:
                bars = _bars_for(str(self.name), sum(lacking.values()), progress)
            literal = [escape(path) for path in lacking]
            with _hub(self.name, self.kind) as hub:
                if silence := _silenced_bars(hub):
                    raise OutOfReach(silence)
                _patiently(
                    lambda: _snapshot(
                        hub, self.name, self.kind, self.commit, literal, tqdm_class=bars
                    )
                )
        if missing := [path for path in lacking if not (self.folder / path).is_file()]:
            raise self.kind.error(
                f"{missing[0]} of {self.source} was not downloaded; run the same again"
            )
        return [self.folder / path for path in paths]


def open_snapshot(name: HubName, kind: Kind) -> Snapshot:
    """The repository ``name`` at the commit that its revision is now; of its files only the description is fetched.

    Without network a revision is the commit that it was when it was last asked for.  Raises the kind's error when there
    is none, it is gated, or nothing of it is known here and the Hub can't be reached.
    """
    with _hub(name, kind) as hub:
        commit = _commit(hub, name, kind)
        folder = Path(_listed(hub, name, kind, commit))
        files = _files(hub, name, kind, commit, folder)
    return Snapshot(name, kind, commit, files, folder)


def commit_of(name: HubName, kind: Kind) -> str | None:
    """The commit that the revision of ``name`` is now, as in :func:`open_snapshot`; None where that can't be said."""
    try:
        with _hub(name, kind) as hub:
            return _commit(hub, name, kind)
    except ChoicewiseError:  # who opens it hears why
        return None


class OutOfReach(Exception):
    """The Hub does not answer, for the reason that this says, and the cache does not hold what is asked for."""


def explained(error: Exception, name: HubName, kind: Kind) -> ChoicewiseError:
    """The error that users read in place of ``error``, which ``huggingface_hub`` raised about ``name``."""
    if isinstance(error, ChoicewiseError):
        return error
    return kind.error(f"{kind.name} {name}: {_reason(error, name, kind)}")


_NAME = re.compile(
    r"(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?::(?P<config>[^@]+))?(?:@(?P<revision>[^\s@]+))?",
    re.ASCII,
)


def hub_name(text: str) -> HubName | None:
    """What ``text`` names on the Hub; None where it can't be such a name."""
    match = _NAME.fullmatch(text)
    return HubName(**match.groupdict()) if match else None


_PAGE = re.compile(
    r"https?:/{1,2}(?:www\.)?(?:huggingface\.co|hf\.co)/(?P<kind>datasets/|spaces/)?(?P<name>[\w.-]+/[\w.-]+)"
    r"(?:/(?P<tab>\w+)/(?P<part>[^/?#]+))?(?:[/?#].*)?",
    re.ASCII,
)
_OF_REVISION: Final = (
    "tree",
    "blob",
    "resolve",
    "commit",
)  # parts of a page's address before a revision


def refuse_page(text: str, kind: Kind) -> None:
    """The kind's error where ``text`` is the address of a page of the Hub, with the name to type in its place."""
    if (page := _PAGE.fullmatch(text)) is None:
        return
    what = (page["kind"] or "models/").rstrip("s/")
    config = (
        page["part"]
        if page["tab"] == "viewer" and what == "dataset" and page["part"] != "default"
        else None
    )
    revision = page["part"] if page["tab"] in _OF_REVISION and page["part"] != "main" else None
    name = HubName(page["name"], config, revision)
    if what != kind.name:
        raise kind.error(
            f"{name} is a {what} on the Hub, and no {kind.name}: name it as the {what}"
        )
    raise kind.error(f"that is the address of a page; the {what} is called {name}: name it so")


def out_of_reach() -> str:
    """Why ``HF_ENDPOINT`` gave no answer when it was last asked, at most a minute ago; empty where it gave any."""
    from huggingface_hub import constants

    endpoint = constants.ENDPOINT
    asked, silence = _answers.get(endpoint, (float("-inf"), ""))
    if monotonic() - asked > REMEMBERED:
        answer = in_time(_patience(), partial(_silence_now, endpoint))
        silence = _too_slow() if answer is None else answer
        _answers[endpoint] = monotonic(), silence
    return silence


def _commit(hub: Any, name: HubName, kind: Kind) -> str:
    ask = partial(
        hub.resolve_revision, name.repository, repo_type=kind.name, revision=name.revision
    )
    silence = "" if re.fullmatch("[0-9a-f]{40}", name.revision or "") else _silenced_bars(hub)
    revision = (
        _in_cache(partial(ask, local_files_only=True), silence) if silence else _patiently(ask)
    )
    return str(revision.resolved)


def _listed(hub: Any, name: HubName, kind: Kind, commit: str) -> str:
    """The folder of a commit, which holds its description now; the Hub is asked for it and the listing but once."""
    ask = partial(_snapshot, hub, name, kind, commit, ["README.md"])
    with suppress(hub.errors.CachedRepoTreeNotFoundError, hub.errors.LocalEntryNotFoundError):
        hub.get_cached_repo_tree(name.repository, repo_type=kind.name, revision=commit)
        return ask(local_files_only=True)
    silence = _silenced_bars(hub)
    return _in_cache(partial(ask, local_files_only=True), silence) if silence else _patiently(ask)


def _silenced_bars(hub: Any) -> str:
    """Why asking is of no use; empty where the Hub answers, or the package is forbidden to ask and will say that."""
    return "" if hub.is_offline_mode() else out_of_reach()


def _in_cache(ask: Callable[[], Result], silence: str) -> Result:
    try:
        return ask()
    except Exception as error:
        raise OutOfReach(silence) from error


def _files(hub: Any, name: HubName, kind: Kind, commit: str, folder: Path) -> dict[str, int]:
    try:
        tree = hub.get_cached_repo_tree(name.repository, repo_type=kind.name, revision=commit)
    except hub.errors.CachedRepoTreeNotFoundError:
        if not kind.has_index:
            raise
        local = (file for file in folder.rglob("*") if file.is_file())
        return {file.relative_to(folder).as_posix(): file.stat().st_size for file in local}
    return {file.path: file.size for file in tree}


def _snapshot(
    hub: Any, name: HubName, kind: Kind, commit: str, patterns: list[str], **more: Any
) -> str:
    return hub.snapshot_download(
        name.repository,
        repo_type=kind.name,
        revision=commit,
        allow_patterns=patterns,
        **({"tqdm_class": _Silent} | more),
    )


@contextmanager
def _hub(name: HubName, kind: Kind) -> Iterator[Any]:
    """The package, as quiet as can be, and its errors in our words."""
    if find_spec("huggingface_hub") is None:
        raise kind.error(
            f"{name} is on the Hub, which needs the package huggingface_hub; run: {install_line('hub')}"
        )
    import huggingface_hub.utils.logging  # which sets the level of its log when it is imported, and not before

    levels = {log: log.level for log in map(logging.getLogger, _LOGS)}
    for log in levels:
        log.setLevel(logging.CRITICAL)
    try:
        yield huggingface_hub
    except (
        Exception
    ) as error:  # whatever it raises: its messages hold addresses, which may hold secrets
        raise explained(error, name, kind) from None
    finally:
        for log, level in levels.items():
            log.setLevel(level)


def _patiently(ask: Callable[[], Result]) -> Result:
    for tried in range(1, _TRIES):
        try:
            return ask()
        except Exception as error:
            pause = _retry_after(error, tried)
            if pause is None:
                raise
        time.sleep(pause)
    return ask()


def _retry_after(error: Exception, tried: int) -> float | None:
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError

    for cause in _causes(error):
        response = (
            cause.response if isinstance(cause, HfHubHTTPError | httpx2.HTTPStatusError) else None
        )
        if response is not None and response.status_code in _BUSY:
            asked = response.headers.get("Retry-After", "")
            pause = float(asked) if asked.isdigit() else 2.0 ** (tried - 1)
            return pause if pause <= PATIENCE else None
    return None


def _reason(error: Exception, name: HubName, kind: Kind) -> str:
    from huggingface_hub import constants, errors

    endpoint = _shown(constants.ENDPOINT)
    page = f"{endpoint}/{kind.path}{name.repository}"
    for cause in _causes(error):
        match cause:
            case OutOfReach():
                break
            case errors.GatedRepoError():
                return f"it is gated; ask for access at {page}, then run `hf auth login`, or set HF_TOKEN"
            case errors.RepositoryNotFoundError():
                return (
                    f"{kind.first}{endpoint} has no such {kind.name} that you may read; check the name, or run"
                    " `hf auth login` if it is private"
                )
            case errors.RevisionNotFoundError():
                return f"it has no revision {name.revision}; {page}/tree/main lists its branches and tags"
            case errors.RemoteEntryNotFoundError():
                return (
                    f"a file that it lists is not there; see {page}/tree/{name.revision or 'main'}"
                )
            case errors.DisabledRepoError():
                return f"the Hub does not serve it any more; see {page}"
            case errors.HFValidationError():
                return "that is no name on the Hub; it is ORG/NAME"
            case errors.OfflineModeIsEnabled():
                reason = (
                    f"{kind.first}it is not (or not all) in the Hub's cache, "
                    "and HF_HUB_OFFLINE forbids to fetch it"
                )
                return f"{reason}; unset that, or {_CARRY}" if kind.first else reason
            case errors.CachedRepoTreeNotFoundError():
                return (
                    "the Hub's cache does not say whether all its files are there, as another program filled it; open"
                    " it once with network"
                )
            case errors.HfHubHTTPError():
                return _refused(cause.response.status_code, endpoint)
            case errors.FileMetadataError():
                return (
                    f"{endpoint} does not answer as the Hub does; check HF_ENDPOINT and your proxy"
                )
    return _broken(error, endpoint, kind)


def _refused(status: int, endpoint: str) -> str:
    if status == 401:
        return f"{endpoint} refuses your token; run `hf auth login`, or set HF_TOKEN to another"
    if status == 403:
        return "your token does not open it; make one that may read it, and run `hf auth login`"
    if status == 429:
        return f"{endpoint} says that you asked too often; run the same again in some minutes, after `hf auth login`"
    return f"{endpoint} fails with status {status}; run the same again later"


REFUSED: Final = "can't be reached"
"""What is known at once: no network, a name that nobody resolves, a connection that is refused."""


def _broken(error: Exception, endpoint: str, kind: Kind) -> str:
    import httpx2

    if any(
        isinstance(cause, httpx2.RemoteProtocolError | httpx2.ReadError) for cause in _causes(error)
    ):
        return "the connection broke off in the middle; run the same again: whole files are kept"
    for cause in _causes(error):
        if isinstance(cause, httpx2.HTTPError | OutOfReach):
            silence = str(cause) if isinstance(cause, OutOfReach) else _silence_of(cause) or REFUSED
            reason = (
                f"{kind.first}{endpoint} {silence}, and it is not (or not all) in the Hub's cache"
            )
            return f"{reason}; check network and proxy, or {_CARRY}" if kind.first else reason
    for cause in _causes(error):
        if isinstance(cause, OSError) and "Consistency check failed" in str(cause):
            return "a download is of another size than announced; run the same again"
        if isinstance(cause, OSError) and cause.strerror:
            place = cause.filename or "the Hub's cache"
            return f"{place} can't be written or read: {cause.strerror}; set HF_HOME to a folder of yours with room"
    return f"it can't be read ({type(error).__name__}); run the same again, or fetch it with `hf download`"


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _shown(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _silence_of(error: BaseException) -> str:
    """What an error of the package's transport says about the Hub; empty where the Hub answered something."""
    import httpx2

    if isinstance(error, httpx2.TimeoutException):
        return _too_slow()
    return REFUSED if isinstance(error, httpx2.NetworkError | httpx2.ProxyError) else ""


def _patience() -> int:
    """Seconds that the package waits for an answer of the Hub, here as in the package: 10, or as users set it."""
    from huggingface_hub import constants

    return constants.HF_HUB_ETAG_TIMEOUT


def _too_slow() -> str:
    return f"did not answer within {_patience()} s (HF_HUB_ETAG_TIMEOUT sets another time)"


def _silence_now(endpoint: str) -> str:
    """Asked by the session of the package, which knows proxies and certificates; without its token."""
    from huggingface_hub import get_session

    try:
        get_session().head(endpoint, timeout=_patience(), follow_redirects=False)
    except Exception as error:
        return _silence_of(error)
    return ""


class _Silent:
    """A progress bar, as far as the package asks one of anything, that shows nothing."""

    total: int | None = 0
    n: float = 0
    format_dict: Mapping[str, Any] = {}

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None: ...

    def update(self, n: float | None = 1) -> None:
        self.n += n or 0

    def close(self, *_: Any, **__: Any) -> None:
        """Nothing, as all that only changes what is shown."""

    refresh = set_description = set_description_str = set_postfix_str = close


def _bars_for(name: str, total: int, progress: Download) -> type[_Silent]:
    """The class of bars that report the bytes of one download to ``progress``."""
    seen = 0

    class Bar(_Silent):
        def __init__(self, *_: Any, unit: str = "", **__: Any) -> None:
            self.bytes = unit == "B"

        def update(self, n: float | None = 1) -> None:
            nonlocal seen
            super().update(n)
            if self.bytes and self.n > seen:
                seen = int(self.n)
                progress(name, min(seen, total), total)

    return Bar


MODEL: Final = Kind("model", "", ModelError, True, "there is no folder of that name here, and ")
DATASET: Final = Kind(
    "dataset", "datasets/", DataError, False, "there is no file or folder of that name here, and "
)

BENCHMARK: Final = Kind("dataset", "datasets/", DataError, False)
"""The dataset of a benchmark, which is looked for nowhere else."""
