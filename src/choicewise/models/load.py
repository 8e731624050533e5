"""Load the model that a name stands for."""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from choicewise.errors import ChoicewiseError, ModelError
from choicewise.models.kinds import DTYPES, model_kind, refusal
from choicewise.ports import Loading
from choicewise.util.text import check_name

if TYPE_CHECKING:
    from choicewise.data.hub import Download
    from choicewise.models.model import Model


def load_model(
    name_or_path: str | Path,
    *,
    dtype: str | None = None,
    device: str | None = None,
    window: int | None = None,
    rung: str = "auto",
    batch_tokens: int | None = None,
    trust_remote_code: bool = False,
    adapter: str | Path | None = None,
    products: str | None = None,
    tokenizer: str | None = None,
    elsewhere: bool = False,
    progress: Download | None = None,
    say: Callable[[str], None] | None = None,
) -> Model:
    """Return the model called ``name_or_path``: ``fake:...``, ``bundled:...`` or a folder that
    transformers reads.

    ``FILE.gguf``, a folder with one such file and no other weights, and ``ORG/NAME:FILE.gguf`` on
    the Hub are models of llama.cpp's format (:mod:`choicewise.extensions.gguf.gguf_model`).

    If there is no such folder, ``ORG/NAME[@REVISION]`` is the model of that name on the Hub: its
    safetensors, tokenizer and configuration are downloaded. ``progress`` receives the progress;
    without it a terminal shows bars.

    A name with another prefix is of a kind that an extension adds
    (:class:`choicewise.ports.ModelKind`): ``server:URL#NAME``, ``vllm:MODEL,OPTION=VALUE,...``,
    ``decisions:URL#NAME,OPTION=VALUE,...``. ``tokenizer`` names the tokenizer of a server's model.
    ``say`` receives a line now and then while a server is waited for, from any thread, and if an
    adapter names another model.

    The other arguments are those of :class:`choicewise.models.local.folder_model.FolderModel`.
    Weights are loaded when the first question is answered; the model's ``recipe`` says how to load
    it elsewhere. Raises ModelError if there is no such model, if its kind has no use for an
    argument, if its folder can't be used, or if a package is missing.
    """
    follow()
    name = str(name_or_path)
    check_name(name, "the model", ModelError)
    if name.startswith("http"):
        from choicewise.data.hub import MODEL, refuse_page

        refuse_page(name, MODEL)
    arguments: dict[str, Any] = {
        "dtype": DTYPES.get(dtype or "", dtype),
        "device": device,
        "window": window,
        "rung": None if rung == "auto" else rung,
        "batch_tokens": batch_tokens,
        "trust_remote_code": trust_remote_code or None,
        "adapter": adapter,
        "products": products,
        "tokenizer": tokenizer,
    }
    options = {option: value for option, value in arguments.items() if value is not None}
    message = refusal(name, options)
    if message:
        raise ModelError(message)
    kind = model_kind(name)
    model = kind.open(
        name, Loading(options=options, progress=progress, say=say or _silent, elsewhere=elsewhere)
    )
    model.kind_name = kind.name
    return model


def _silent(line: str) -> None:
    """Drop a line that nobody asked for."""


@cache
def follow() -> None:
    """Make a process that ``torchrun`` started, unless it is rank 0, do what rank 0 asks, and end.

    Rank 0 lets the others go when it ends.  Errors that all ranks have are said by it alone.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    from choicewise.models.local import parallel
    from choicewise.models.local.devices import is_follower, ranks

    if ranks() == 1:
        return
    if not is_follower():
        atexit.register(parallel.release)
        return
    from choicewise.models.local.folder_model import FolderModel
    from choicewise.models.local.local_model import SharedModel

    # Rank 0 hears the interrupt, and torchrun ends the others.
    with suppress(ValueError):
        # Of a thread that is not the main one.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    group = parallel.joined()
    models: dict[int, FolderModel] = {}
    while True:
        call, dropped = group.receive()
        if call is None:
            group.agree(0)
            # An ordinary end would go on with the script that rank 0 runs.
            os._exit(0)
        for number in dropped:
            models.pop(number, None)
        what, number, argument = call
        with suppress(ChoicewiseError):
            if what == "load":
                folder, options = argument
                try:
                    models[number] = FolderModel(folder, **options)
                except ChoicewiseError as error:
                    # Rank 0 has opened it.
                    parallel.give_up(str(error))
                models[number].number = number
                _ = models[number].local
            else:
                model = models[number].local
                assert isinstance(model, SharedModel)
                model.ask(what, argument)
