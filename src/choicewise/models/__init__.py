"""Language models: what every model offers, how one is opened by name, and those that are computed
here.

The kinds of models on this machine are declared here, as an extension declares its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from choicewise.ports import LOADING, Extension, Loading, ModelKind

if TYPE_CHECKING:
    from choicewise.models.model import Model


class Fake(ModelKind):
    """``fake:hash``, ``fake:oracle``, ``fake:anti-oracle``: models for tests and demos, without
    weights.
    """

    name = "fake"
    # Replicas on a cluster take memory, whatever they compute.
    takes = frozenset({"memory"})
    because = "has no weights"
    revisions = ""
    workers = ""

    def folder(self, name: str) -> str:
        return name

    def open(self, name: str, loading: Loading) -> Model:
        from choicewise.models.fake import open_fake

        return open_fake(name)


class Local(ModelKind):
    """A folder, a file or a name on the Hub: every name without the prefix of another kind."""

    name = "local"
    takes = frozenset(LOADING) - {"tokenizer"}
    because = "brings its own tokenizer"
    revisions = ""
    workers = ""

    def folder(self, name: str) -> str:
        return name

    def open(self, name: str, loading: Loading) -> Model:
        from choicewise.models.opening import open_local

        return open_local(name, loading)


class Bundled(Local):
    """``bundled:NAME``: a model in the package, opened as its folder is."""

    name = "bundled"


EXTENSION = Extension("models", [Fake(), Local(), Bundled()])
