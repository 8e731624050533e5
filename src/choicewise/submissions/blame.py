"""Whether a failure is a model's, which fails everywhere, or a machine's, so that another worker may do better."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from choicewise.errors import DataError, ModelError, ProtocolError, StoreError, UsageError
from choicewise.submissions.trouble import Refused

_OF_MODEL: Final = {
    *("RepositoryNotFoundError", "RevisionNotFoundError", "GatedRepoError", "DisabledRepoError"),
    *("HFValidationError", "RemoteEntryNotFoundError"),
}
"""What ``huggingface_hub`` raises where the model is the reason, and neither network nor disk."""

_OF_MACHINE: Final = {
    *("OutOfReach", "HfHubHTTPError", "HTTPError", "OfflineModeIsEnabled", "CachedRepoTreeNotFoundError"),
    *("FileMetadataError", "OSError", "MemoryError", "OutOfMemoryError", "ReplicasLost"),
}
"""What is raised where network, disk or memory are the reason; those of other packages are known by their names."""


def is_of_model(error: BaseException) -> bool:
    """Whether another worker would meet the same."""
    if isinstance(error, Refused) or is_panic(error):
        return True
    if not isinstance(error, ModelError):
        return False
    names = {kind.__name__ for cause in _causes(error) for kind in type(cause).__mro__}
    return bool(names & _OF_MODEL) or not names & _OF_MACHINE


def is_panic(error: BaseException) -> bool:
    """Whether a package written in Rust gave up, over a tokenizer for instance: no Exception, though it is one."""
    return type(error).__name__ == "PanicException"


def ends_worker(error: BaseException) -> bool:
    """Whether this worker would meet the same with every other model: its disk, its data, its version."""
    return isinstance(error, StoreError | DataError | ProtocolError | UsageError)


def words(error: BaseException) -> str:
    """Why, in a line."""
    message, problems = getattr(error, "message", ""), getattr(error, "problems", ())
    return "; ".join((message, *problems)) if message else f"{type(error).__name__}: {error}".removesuffix(": ")


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
