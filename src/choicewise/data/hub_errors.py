"""Why something can't be had from the Hub, in words, and what to do about it.

Nothing of the messages that ``huggingface_hub`` makes is repeated: they hold addresses, and addresses hold secrets.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from choicewise.data.hub_name import HubName
from choicewise.data.hub_reach import REFUSED, silence_of
from choicewise.errors import ChoicewiseError, DataError, ModelError

BUSY: Final = (429, 500, 502, 503, 504)
"""What a server answers that may answer later."""

PATIENCE: Final = 60
"""Seconds that a server may ask to wait."""

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


MODEL: Final = Kind("model", "", ModelError, True, "there is no folder of that name here, and ")
DATASET: Final = Kind("dataset", "datasets/", DataError, False, "there is no file or folder of that name here, and ")
BENCHMARK: Final = Kind("dataset", "datasets/", DataError, False)
"""The dataset of a benchmark, which is looked for nowhere else."""


class OutOfReach(Exception):
    """The Hub does not answer, for the reason that this says, and the cache does not hold what is asked for."""


def explained(error: Exception, name: HubName, kind: Kind) -> ChoicewiseError:
    """The error that users read in place of ``error``, which ``huggingface_hub`` raised about ``name``."""
    if isinstance(error, ChoicewiseError):
        return error
    return kind.error(f"{kind.name} {name}: {_reason(error, name, kind)}")


def retry_after(error: Exception, tried: int) -> float | None:
    """Seconds to wait before the ``tried + 1``-th try; None where another try is of no use."""
    for response in _responses(error):
        if response.status_code in BUSY:
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
                return f"a file that it lists is not there; see {page}/tree/{name.revision or 'main'}"
            case errors.DisabledRepoError():
                return f"the Hub does not serve it any more; see {page}"
            case errors.HFValidationError():
                return "that is no name on the Hub; it is ORG/NAME"
            case errors.OfflineModeIsEnabled():
                reason = (
                    f"{kind.first}it is not (or not all) in the Hub's cache, and HF_HUB_OFFLINE forbids to fetch it"
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
                return f"{endpoint} does not answer as the Hub does; check HF_ENDPOINT and your proxy"
    return _broken(error, endpoint, kind)


def _refused(status: int, endpoint: str) -> str:
    if status == 401:
        return f"{endpoint} refuses your token; run `hf auth login`, or set HF_TOKEN to another"
    if status == 403:
        return "your token does not open it; make one that may read it, and run `hf auth login`"
    if status == 429:
        return f"{endpoint} says that you asked too often; run the same again in some minutes, after `hf auth login`"
    return f"{endpoint} fails with status {status}; run the same again later"


def _broken(error: Exception, endpoint: str, kind: Kind) -> str:
    """What ended a transfer or kept one from beginning."""
    from huggingface_hub import errors

    names = {type(cause).__name__ for cause in _causes(error)}
    if names & {"RemoteProtocolError", "ReadError"}:
        return "the connection broke off in the middle; run the same again: whole files are kept"
    transport = errors.HfHubHTTPError.__bases__[0]  # HTTPError of httpx, of whatever version
    for cause in _causes(error):
        if isinstance(cause, (transport, OutOfReach)):
            silence = str(cause) if isinstance(cause, OutOfReach) else silence_of(cause) or REFUSED
            reason = f"{kind.first}{endpoint} {silence}, and it is not (or not all) in the Hub's cache"
            return f"{reason}; check network and proxy, or {_CARRY}" if kind.first else reason
    for cause in _causes(error):
        if isinstance(cause, OSError) and "Consistency check failed" in str(cause):
            return "a download is of another size than announced; run the same again"
        if isinstance(cause, OSError) and cause.strerror:
            place = cause.filename or "the Hub's cache"
            return f"{place} can't be written or read: {cause.strerror}; set HF_HOME to a folder of yours with room"
    return f"it can't be read ({type(error).__name__}); run the same again, or fetch it with `hf download`"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it came of."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _responses(error: BaseException) -> Iterator[Any]:
    for cause in _causes(error):
        if (response := cause.__dict__.get("response")) is not None:
            yield response


def _shown(endpoint: str) -> str:
    """The address without a user and password in it."""
    parts = urlsplit(endpoint)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
