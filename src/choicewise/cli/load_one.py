"""The model of a command that asks it a few things and keeps no run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from choicewise.cli import options
from choicewise.cli.download import show_download
from choicewise.cli.evaluation import tell_other_base
from choicewise.cli.output import tell

if TYPE_CHECKING:
    from choicewise.models.model import Model


def load_one(
    model: str,
    *,
    dtype: str | None,
    device: str | None,
    window: int | None,
    adapter: Path | None,
    tokenizer: str | None,
) -> Model:
    """The model of these options; UsageError for those that this kind of model has no use for, ModelError as loading.

    Tells on stderr where an adapter names another model than the one that it is put into.
    """
    options.refuse_foreign(model, tokenizer, window, dtype=dtype, device=device, adapter=adapter)
    from choicewise.models.load import load_model

    progress = show_download()
    loaded = load_model(
        model,
        dtype=dtype,
        device=device,
        window=window,
        adapter=adapter,
        tokenizer=tokenizer,
        progress=progress,
        say=tell,
    )
    tell_other_base(model, adapter)
    return loaded
