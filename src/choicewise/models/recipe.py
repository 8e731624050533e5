"""How to load a model once more, in another process or on another machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from choicewise.models.model import Model


@dataclass(frozen=True)
class Recipe:
    """``name`` and ``options`` are the arguments of :func:`choicewise.models.load.load_model` that were given.

    ``name`` is a folder by its absolute path, or what every machine knows: a name on the Hub with the commit that was
    loaded, the name of a bundled model or of a fake.  Values of ``options`` are plain: texts, numbers, flags; the
    folder of an adapter is there by its absolute path.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def load(self, **changed: Any) -> Model:
        """The model; ``changed``: arguments of ``load_model`` in place of the ``options``, as a device of this machine.

        Another model may lie under the same path by now, so compare its digest.  Raises ModelError as ``load_model``.
        """
        from choicewise.models.load import load_model

        return load_model(self.name, **{**self.options, **changed})
