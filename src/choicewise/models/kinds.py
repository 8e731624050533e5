"""Which kind of model a name stands for, and which options of loading that kind refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from choicewise.errors import not_applicable
from choicewise.ports import ModelKind, find

if TYPE_CHECKING:  # an option is refused before anything is loaded
    from choicewise.models.model import Model
    from choicewise.records import Manifest


DTYPES = {"fp16": "float16", "bf16": "bfloat16"}
"""Short names of dtypes, which mean the long ones everywhere."""


def model_kind(name: str) -> ModelKind:
    """Return the kind of the model ``name``: by its prefix, and the local kind if no kind has such
    a prefix.

    Other packages are searched only if no built-in extension has the prefix, and never for a path.
    """
    prefix, colon, _ = name.partition(":")
    if colon and prefix.isidentifier():
        return find(ModelKind, prefix) or _local()
    return _local()


def kind_of(model: Model) -> ModelKind:
    """Return the kind that opened ``model``; the local kind for a model that a caller made."""
    if not model.kind_name:
        return _local()
    return find(ModelKind, model.kind_name) or _local()


def shard_tokens_of(model: Model) -> int | None:
    """Return how many unique tokens a shard of the model's questions has at least.

    None for all questions of a block, if the program that computes the model divides the work
    itself.
    """
    from choicewise.engine import shard_tokens

    return None if kind_of(model).remote else shard_tokens(model.device)


def answering_kind(manifest: Manifest) -> ModelKind | None:
    """Return the kind of the model that answered a run.

    None if the run was imported, if a caller made the model, or if the package of the kind is not
    installed.
    """
    name = manifest.model.kind
    if not name and manifest.server is not None:
        # Earlier versions did not write the kind.
        name = "server" if manifest.server.endpoint is None else "decisions"
    return find(ModelKind, name) if name else None


def _local() -> ModelKind:
    kind = find(ModelKind, "local")
    assert kind is not None
    return kind


def refusal(name: str, given: Iterable[str], spelled: Callable[[str], str] = str) -> str:
    """Return why the model ``name`` is refused with the options ``given``, "" if its kind takes all
    of them.

    ``spelled``: from the name of an option to what users wrote. Raises ModelError if no model of
    its kind can have the name.
    """
    kind = model_kind(name)
    kind.check(name)
    useless = [spelled(option) for option in given if option not in kind.takes]
    if not useless:
        return ""
    target = kind.display(name)
    if kind.because:
        target += f", which {kind.because}"
    return not_applicable(useless, target)
