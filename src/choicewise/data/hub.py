"""Fetch snapshots of repositories from the Hub, and say in words what goes wrong.

Everything that ``huggingface_hub`` raises becomes an error that says what to do.  Nothing of its
messages is repeated: they hold addresses, and addresses hold secrets.  That the Hub is out of reach
is remembered for a while, so that the second benchmark of a suite does not wait as the first did.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from glob import escape
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import urlsplit

from choicewise.errors import ChoicewiseError, DataError, ModelError, install_line
from choicewise.util.background import in_time

# Seconds for which an answer holds: a notebook outlives a network that is down.
REMEMBERED = 60.0
_answers: dict[str, tuple[float, str]] = {}  # endpoint → when it was tried, why it is silent
Result = TypeVar("Result")
# Loggers that name addresses, which may be signed.
_LOGS = ("huggingface_hub", "httpx2", "httpcore2")
_TRIES = 4  # of a request that the Hub was too busy to answer
_BUSY = (429, 500, 502, 503, 504)  # statuses of a server that may answer later
PATIENCE = 60  # seconds that a server may ask to wait
_CARRY = "copy the cache (HF_HOME) from a machine that has it"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of repository: the Hub's word, the path of its pages, the error if it can't be had.

    ``has_index``: a repository shows without the Hub's listing if all of it is there.  ``first``:
    the beginning of an error, which says what was looked for before the Hub.
    """

    name: str
    path: str
    error: type[ChoicewiseError]
    has_index: bool
    first: str = ""


@dataclass(frozen=True)
class HubName:
    """A repository, a configuration of it (datasets have several), and a branch, tag or commit.

    The last two are None if they are not said.
    """

    repository: str
    config: str | None = None
    revision: str | None = None

    def __str__(self) -> str:
        name = self.repository
        if self.config:
            name += f":{self.config}"
        if self.revision:
            name += f"@{self.revision}"
        return name


Download = Callable[[str, int, int], None]
"""Is called with (name, bytes done, bytes in all) while files are downloaded, from any thread."""


@dataclass(frozen=True)
class Snapshot:
    """A repository at one commit.

    ``files``: path → size in bytes of everything in it, downloaded or not; ``folder``: where
    downloaded files lie, by the same paths.
    """

    name: HubName
    kind: Kind
    commit: str
    files: Mapping[str, int]
    folder: Path

    @property
    def source(self) -> str:
        """Return the repository, the configuration if one was named, and the commit."""
        return str(HubName(self.name.repository, self.name.config, self.commit))

    def download(self, paths: Collection[str], progress: Download | None = None) -> list[Path]:
        """Return the files of these ``paths`` on this machine, in order.

        Those in the cache are not fetched again.  Raises the kind's error if one can't be had.
        """
        lacking = {path: self.files[path] for path in paths if not (self.folder / path).is_file()}
        if lacking:
            self._fetch(lacking, progress)
        for path in lacking:
            if not (self.folder / path).is_file():
                raise self.kind.error(
                    f"{path} of {self.source} was not downloaded; run the same again"
                )
        return [self.folder / path for path in paths]

    def _fetch(self, sizes: Mapping[str, int], progress: Download | None) -> None:
        # The bars of the package are None; they are for terminals.
        bars = None if sys.stderr.isatty() else _Silent
        if progress:
            bars = _bars_for(str(self.name), sum(sizes.values()), progress)
        patterns = list(map(escape, sizes))
        with _hub(self.name, self.kind) as hub:
            silence = _silence(hub)
            if silence:
                raise OutOfReach(silence)
            _patiently(
                partial(
                    _snapshot, hub, self.name, self.kind, self.commit, patterns, tqdm_class=bars
                )
            )


def open_snapshot(name: HubName, kind: Kind) -> Snapshot:
    """Return the repository ``name`` at the commit that its revision is now.

    Of its files only the description is fetched.  Without network a revision is the commit that it
    was when the Hub last answered.  Raises the kind's error if there is none, it is gated, or
    nothing of it is in the cache and the Hub can't be reached.
    """
    with _hub(name, kind) as hub:
        commit = _commit(hub, name, kind)
        folder = Path(_listed(hub, name, kind, commit))
        files = _files(hub, name, kind, commit, folder)
    return Snapshot(name, kind, commit, files, folder)


def commit_of(name: HubName, kind: Kind) -> str | None:
    """Return the commit that the revision of ``name`` is now; None if the Hub does not say it."""
    try:
        with _hub(name, kind) as hub:
            return _commit(hub, name, kind)
    except ChoicewiseError:
        # Who opens it hears why.
        return None


class OutOfReach(Exception):
    """The Hub does not answer, for the reason that this says, and the cache does not hold a file."""


def explained(error: Exception, name: HubName, kind: Kind) -> ChoicewiseError:
    """Return the error that users read in place of one that ``huggingface_hub`` raised."""
    if isinstance(error, ChoicewiseError):
        return error
    return kind.error(f"{kind.name} {name}: {_reason(error, name, kind)}")


_NAME = re.compile(
    r"(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?::(?P<config>[^@]+))?(?:@(?P<revision>[^\s@]+))?",
    re.ASCII,
)


def hub_name(text: str) -> HubName | None:
    """Return what ``text`` names on the Hub; None if it can't be such a name."""
    match = _NAME.fullmatch(text)
    if match is None:
        return None
    return HubName(match["repository"], match["config"], match["revision"])


_PAGE = re.compile(
    r"https?:/{1,2}(?:www\.)?(?:huggingface\.co|hf\.co)/(?P<kind>datasets/|spaces/)?(?P<name>[\w.-]+/[\w.-]+)"
    r"(?:/(?P<tab>\w+)/(?P<part>[^/?#]+))?(?:[/?#].*)?",
    re.ASCII,
)
# Parts of a page's address before a revision.
_BEFORE_REVISION = ("tree", "blob", "resolve", "commit")


def refuse_page(text: str, kind: Kind) -> None:
    """Raise the kind's error if ``text`` is the address of a page of the Hub.

    It says the name to type instead.
    """
    page = _PAGE.fullmatch(text)
    if page is None:
        return
    what = (page["kind"] or "models/").rstrip("s/")
    config = None
    revision = None
    if what == "dataset" and page["tab"] == "viewer" and page["part"] != "default":
        config = page["part"]
    if page["tab"] in _BEFORE_REVISION and page["part"] != "main":
        revision = page["part"]
    name = HubName(page["name"], config, revision)
    if what != kind.name:
        raise kind.error(
            f"{name} is a {what} on the Hub, and no {kind.name}: name it as the {what}"
        )
    raise kind.error(f"name the {what} {name}, not the address of its page")


def out_of_reach() -> str:
    """Return why ``HF_ENDPOINT`` gave no answer, at most a minute ago; empty if it gave any."""
    from huggingface_hub import constants

    endpoint = constants.ENDPOINT
    tried, silence = _answers.get(endpoint, (float("-inf"), ""))
    if monotonic() - tried > REMEMBERED:
        answer = in_time(_patience(), partial(_silence_now, endpoint))
        silence = _too_slow() if answer is None else answer
        _answers[endpoint] = monotonic(), silence
    return silence


def _commit(hub: Any, name: HubName, kind: Kind) -> str:
    resolve = partial(
        hub.resolve_revision, name.repository, repo_type=kind.name, revision=name.revision
    )
    # A commit needs no network.
    silence = ""
    if not re.fullmatch("[0-9a-f]{40}", name.revision or ""):
        silence = _silence(hub)
    if silence:
        revision = _in_cache(partial(resolve, local_files_only=True), silence)
    else:
        revision = _patiently(resolve)
    return str(revision.resolved)


def _listed(hub: Any, name: HubName, kind: Kind, commit: str) -> str:
    """Return the folder of a commit, which holds its description now.

    The Hub is asked for it and the listing only once.
    """
    fetch = partial(_snapshot, hub, name, kind, commit, ["README.md"])
    fetch_local = partial(fetch, local_files_only=True)
    with suppress(hub.errors.CachedRepoTreeNotFoundError, hub.errors.LocalEntryNotFoundError):
        hub.get_cached_repo_tree(name.repository, repo_type=kind.name, revision=commit)
        return fetch_local()
    silence = _silence(hub)
    if silence:
        return _in_cache(fetch_local, silence)
    return _patiently(fetch)


def _silence(hub: Any) -> str:
    """Return why the Hub need not be asked; empty if it answers.

    It is empty as well if the package is forbidden to ask, which it will say.
    """
    if hub.is_offline_mode():
        return ""
    return out_of_reach()


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
        local = [file for file in folder.rglob("*") if file.is_file()]
        return {file.relative_to(folder).as_posix(): file.stat().st_size for file in local}
    return {file.path: file.size for file in tree}


def _snapshot(
    hub: Any, name: HubName, kind: Kind, commit: str, patterns: list[str], **options: Any
) -> str:
    return hub.snapshot_download(
        name.repository,
        repo_type=kind.name,
        revision=commit,
        allow_patterns=patterns,
        **({"tqdm_class": _Silent} | options),
    )


@contextmanager
def _hub(name: HubName, kind: Kind) -> Iterator[Any]:
    """Yield the package, as quiet as can be, and raise its errors in our words."""
    if find_spec("huggingface_hub") is None:
        raise kind.error(
            f"{name} is on the Hub, which needs the package huggingface_hub; run: "
            f"{install_line('hub')}"
        )
    # Its log has a level as soon as this module is imported, and not before.
    import huggingface_hub.utils.logging

    levels = {log: log.level for log in map(logging.getLogger, _LOGS)}
    for log in levels:
        log.setLevel(logging.CRITICAL)
    try:
        yield huggingface_hub
    except Exception as error:
        # Whatever it raises: its messages hold addresses, which may hold secrets.
        raise explained(error, name, kind) from None
    finally:
        for log, level in levels.items():
            log.setLevel(level)


def _patiently(ask: Callable[[], Result]) -> Result:
    """Ask again, after a pause, while the Hub is busy."""
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
    """Return the seconds to wait before the next try; None if there should be none."""
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError

    for cause in _causes(error):
        if not isinstance(cause, HfHubHTTPError | httpx2.HTTPStatusError):
            continue
        response = cause.response
        if response is None or response.status_code not in _BUSY:
            continue
        header = response.headers.get("Retry-After", "")
        pause = float(header) if header.isdigit() else 2.0 ** (tried - 1)
        return pause if pause <= PATIENCE else None
    return None


def _reason(error: Exception, name: HubName, kind: Kind) -> str:  # noqa: C901, a flat table
    from huggingface_hub import constants, errors

    # An address may hold a password.
    address = urlsplit(constants.ENDPOINT)
    endpoint = address._replace(netloc=address.netloc.rpartition("@")[2]).geturl()
    page = f"{endpoint}/{kind.path}{name.repository}"
    for cause in _causes(error):
        match cause:
            case OutOfReach():
                break
            case errors.GatedRepoError():
                return (
                    f"it is gated; ask for access at {page}, then run `hf auth login`, or set "
                    "HF_TOKEN"
                )
            case errors.RepositoryNotFoundError():
                return (
                    f"{kind.first}{endpoint} has no such {kind.name} that you may read; check the "
                    "name, or run"
                    " `hf auth login` if it is private"
                )
            case errors.RevisionNotFoundError():
                return (
                    f"it has no revision {name.revision}; {page}/tree/main lists its branches and "
                    "tags"
                )
            case errors.RemoteEntryNotFoundError():
                return (
                    f"a file that it lists is not there; see {page}/tree/{name.revision or 'main'}"
                )
            case errors.DisabledRepoError():
                return f"the Hub does not serve it any more; see {page}"
            case errors.HFValidationError():
                return "it is no name on the Hub; write ORG/NAME"
            case errors.OfflineModeIsEnabled():
                reason = (
                    f"{kind.first}it is not (or not all) in the Hub's cache, "
                    "and HF_HUB_OFFLINE forbids to fetch it"
                )
                return f"{reason}; unset that, or {_CARRY}" if kind.first else reason
            case errors.CachedRepoTreeNotFoundError():
                return (
                    "the Hub's cache may lack some of its files, as another program filled it; open"
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
        return (
            f"{endpoint} refuses so many requests; run `hf auth login`, wait some minutes, and run "
            "the same command again"
        )
    return f"{endpoint} fails with status {status}; run the same again later"


# No network, a name that nobody resolves, a connection that is refused: what is known at once.
REFUSED = "can't be reached"


def _broken(error: Exception, endpoint: str, kind: Kind) -> str:
    """Return what broke between this machine and the Hub, and what to do."""
    import httpx2

    for cause in _causes(error):
        if isinstance(cause, httpx2.RemoteProtocolError | httpx2.ReadError):
            return (
                "the connection broke off in the middle; run the same again: whole files are kept"
            )
    for cause in _causes(error):
        if isinstance(cause, httpx2.HTTPError | OutOfReach):
            silence = _silence_of(cause) or REFUSED
            if isinstance(cause, OutOfReach):
                silence = str(cause)
            reason = (
                f"{kind.first}{endpoint} {silence}, and it is not (or not all) in the Hub's cache"
            )
            return f"{reason}; check network and proxy, or {_CARRY}" if kind.first else reason
    for cause in _causes(error):
        if isinstance(cause, OSError) and "Consistency check failed" in str(cause):
            return "a download is of another size than announced; run the same again"
        if isinstance(cause, OSError) and cause.strerror:
            where = cause.filename or "the Hub's cache"
            return (
                f"{where} can't be written or read: {cause.strerror}; set HF_HOME to a folder of "
                "yours with room"
            )
    return (
        f"it can't be read ({type(error).__name__}); run the same again, or fetch it with "
        "`hf download`"
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _silence_of(error: BaseException) -> str:
    """Return what an error of the package's transport says about the Hub; empty if it answered."""
    import httpx2

    if isinstance(error, httpx2.TimeoutException):
        return _too_slow()
    if isinstance(error, httpx2.NetworkError | httpx2.ProxyError):
        return REFUSED
    return ""


def _patience() -> int:
    """Return the seconds that the package waits for an answer of the Hub: 10, or as users set it."""
    from huggingface_hub import constants

    return constants.HF_HUB_ETAG_TIMEOUT


def _too_slow() -> str:
    return f"did not answer within {_patience()} s (HF_HUB_ETAG_TIMEOUT sets another time)"


def _silence_now(endpoint: str) -> str:
    """Return why the Hub does not answer now, or "".

    The session of the package knows proxies and certificates; its token is not sent.
    """
    from huggingface_hub import get_session

    try:
        get_session().head(endpoint, timeout=_patience(), follow_redirects=False)
    except Exception as error:
        return _silence_of(error)
    return ""


class _Silent:
    """A progress bar that shows nothing, with what the package uses of one."""

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
        """Do nothing, as all methods that only change what a bar shows."""

    refresh = set_description = set_description_str = set_postfix_str = close


def _bars_for(name: str, total: int, progress: Download) -> type[_Silent]:
    """Return the class of bars that report the bytes of one download to ``progress``."""
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


MODEL = Kind(
    name="model",
    path="",
    error=ModelError,
    has_index=True,
    first="there is no folder of that name here, and ",
)
DATASET = Kind(
    name="dataset",
    path="datasets/",
    error=DataError,
    has_index=False,
    first="there is no file or folder of that name here, and ",
)
# The dataset of a benchmark is looked for nowhere else.
BENCHMARK = replace(DATASET, first="")
