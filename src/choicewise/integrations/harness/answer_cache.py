"""The harness's cache of answers, whose keys are texts alone: it is stamped with the model that it belongs to."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from choicewise.errors import UsageError

STAMP = "choicewise model"
"""The key of the stamp; the harness's own are sha256."""


def stamp(answers: MutableMapping[str, Any], identity: str) -> None:
    """Mark ``answers`` as those of the model with this ``identity``.

    Raises UsageError where they are another's: the harness would give them out as this model's, as no key of its cache
    names the model, its tokenizer or its arithmetic.
    """
    known = answers.get(STAMP)
    if known is None and not len(answers):
        answers[STAMP] = identity
    elif known != identity:
        whose = "a model or settings that it does not name" if known is None else "another model or other settings"
        raise UsageError(
            f"the cache {getattr(answers, 'filename', '')} holds answers of {whose}, which would be taken for this "
            "model's; pass another path as use_cache, or delete the file"
        )
