"""The model that a name stands for: a fake, a folder, a repository on the Hub, a server."""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from choicewise.bundled import MODELS, PREFIX, bundled_folder
from choicewise.data.hub import MODEL, Download, HubName, Snapshot, hub_name, open_snapshot, refuse_page
from choicewise.errors import ChoicewiseError, ModelError, install_line
from choicewise.extensions.endpoints.decisions.endpoint_name import PREFIX as ENDPOINT
from choicewise.extensions.endpoints.decisions.endpoint_name import EndpointName
from choicewise.extensions.endpoints.server.address import PREFIX as SERVED
from choicewise.extensions.endpoints.server.address import ServerAddress
from choicewise.extensions.endpoints.vllm.engine_name import PREFIX as ENGINE
from choicewise.extensions.endpoints.vllm.engine_name import EngineName
from choicewise.models.fake import AntiOracle, HashModel, Oracle
from choicewise.models.local import parallel
from choicewise.models.local.devices import is_follower, ranks
from choicewise.models.local.files import CONFIG, FILES, indexed_files, readable
from choicewise.models.local.gguf_file import is_gguf, named_gguf
from choicewise.models.model import Model, Recipe
from choicewise.util.text import check_name

if TYPE_CHECKING:
    from choicewise.models.local.folder_model import FolderModel

FAKES = {"fake:hash": HashModel, "fake:oracle": Oracle, "fake:anti-oracle": AntiOracle}
_WEIGHTS: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
_ALONE: Final = {
    "openai-community": ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "openai-gpt"),
    "distilbert": ("distilgpt2", "distilbert-base-cased", "distilbert-base-uncased", "distilroberta-base"),
    "google-bert": ("bert-base-cased", "bert-base-uncased", "bert-large-cased", "bert-large-uncased"),
    "FacebookAI": ("roberta-base", "roberta-large", "xlm-roberta-base", "xlm-roberta-large"),
    "google-t5": ("t5-small", "t5-base", "t5-large", "t5-3b", "t5-11b"),
}
"""Organisation on the Hub → its models that people know by a name without it."""

_PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack")


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
    tokenizer: str | None = None,
    elsewhere: bool = False,
    progress: Download | None = None,
    say: Callable[[str], None] | None = None,
) -> Model:
    """The model called ``name_or_path``: ``fake:...``, ``bundled:...`` or a folder in the format of transformers.

    ``server:URL#NAME`` is what a server at that address calls ``NAME``; ``tokenizer`` names the tokenizer of that
    (:mod:`choicewise.extensions.endpoints.server.server_model`), and ``window`` counts input tokens as of any model.
    ``FILE.gguf``, a folder with one such file and no other weights, and ``ORG/NAME:FILE.gguf`` on the Hub are models of
    llama.cpp's format (:mod:`choicewise.models.local.gguf_model`).
    ``vllm:MODEL,OPTION=VALUE,...`` is a folder or a name on the Hub that vLLM computes here, with options of its engine
    (:mod:`choicewise.extensions.endpoints.vllm.engine_model`); of the arguments it takes dtype, window and
    batch_tokens.
    ``decisions:URL#NAME,OPTION=VALUE,...`` is a decision endpoint
    (:mod:`choicewise.extensions.endpoints.decisions.decision_model`), which takes none of the arguments.
    ``say`` gets a line now and then while a server is waited for, from any thread, and where an adapter names another
    model.

    Where there is no such folder, ``ORG/NAME[@REVISION]`` is the model of that name on the Hub: its safetensors,
    tokenizer and configuration are downloaded, of which ``progress`` hears; without it a terminal shows bars.  The
    other arguments are those of :class:`choicewise.models.local.folder_model.FolderModel`; a fake has no use for them.
    Weights are loaded when something is first answered; the model's ``recipe`` says how to load it elsewhere.  Raises
    ModelError when there is no such model, when its folder can't be used, or when torch or transformers are not
    installed.
    """
    follow()
    name = str(name_or_path)
    check_name(name, "the model", ModelError)
    refuse_page(name, MODEL)
    if kind := FAKES.get(name):
        fake = kind()
        fake.recipe = Recipe(name)
        return fake
    foreign: dict[str, object] = {"dtype": dtype, "device": device, "window": window, "adapter": adapter}
    foreign |= {"tokenizer": tokenizer, "trust_remote_code": trust_remote_code, "batch_tokens": batch_tokens}
    foreign |= {"rung": None if rung == "auto" else rung}
    if name.startswith((SERVED, ENDPOINT)):
        for package in ("httpx2", "stamina"):
            if find_spec(package) is None:
                raise ModelError(
                    f"a model behind a server needs httpx2 and stamina ({package} is missing);"
                    f" run: {install_line('server')}"
                )
    if name.startswith(ENDPOINT):
        wanted = EndpointName.parse(name)
        if useless := [option for option, value in foreign.items() if value]:
            raise ModelError(
                f"{wanted.address} is an endpoint and has no use for {' and '.join(useless)}; leave it out"
            )
        from choicewise.extensions.endpoints.decisions.decision_model import DecisionModel

        return DecisionModel(wanted, say=say or _silent)
    if name.startswith(SERVED):
        from choicewise.extensions.endpoints.server.server_model import ServerModel

        address = ServerAddress.parse(name)
        return ServerModel(address, tokenizer=tokenizer, window=window, progress=progress, say=say or _silent)
    if name.startswith(ENGINE):
        own = ("dtype", "window", "batch_tokens")
        if useless := [option for option, value in foreign.items() if value and option not in own]:
            raise ModelError(f"{name} is computed by vLLM and has no use for {' and '.join(useless)}; leave it out")
        return _engine_model(name, progress, dtype=dtype, window=window, batch_tokens=batch_tokens, say=say or _silent)
    if tokenizer is not None:
        raise ModelError(f"{name} has its own tokenizer; only a model behind a server takes another")
    if name.startswith("fake:"):
        raise ModelError(f"{name} is not a model; the fakes are {', '.join(FAKES)}")
    if name.startswith(PREFIX):
        name = str(_bundled(name))
    given: dict[str, Any] = {
        "dtype": dtype,
        "device": device,
        "window": window,
        "rung": None if rung == "auto" else rung,
        "batch_tokens": batch_tokens,
        "trust_remote_code": trust_remote_code or None,
        "adapter": None if adapter is None else str(Path(adapter).absolute()),  # for another process
    }
    options = {option: value for option, value in given.items() if value is not None}
    try:
        is_folder = Path(name).is_dir()
    except OSError as error:
        raise ModelError(f"{name} can't be read: {error.strerror}; check the path") from error
    with readable(Path(name)):
        gguf = named_gguf(Path(name))
    on_hub = None if is_folder or Path(name).exists() else hub_name(name)
    if not is_folder and on_hub is None and gguf is None:
        raise ModelError(f"there is no model folder {name}; {_advice(name)}")
    for package in ("torch", "transformers", "tokenizers"):
        if find_spec(package) is None:
            raise ModelError(f"{name} needs torch and transformers ({package} is missing); run: {install_line('hf')}")
    from choicewise.models.local.folder_model import FolderModel

    if gguf is not None or (on_hub is not None and is_gguf(on_hub.config or "")):
        model = _gguf_model(gguf, on_hub, options, elsewhere, progress)
    elif on_hub is None:
        model = FolderModel(name, **options, elsewhere=elsewhere)
        is_bundled = str(name_or_path).startswith(PREFIX)
        model.recipe = Recipe(str(name_or_path) if is_bundled else str(Path(name).absolute()), options)
    elif trust_remote_code:
        raise ModelError(
            f"code is never fetched from the Hub; run `hf download {on_hub.repository}`, read the code in the folder"
            " that it names, and pass that folder"
        )
    else:
        snapshot, paths = open_hub_model(on_hub, progress)
        snapshot.download(paths, progress)
        model = FolderModel(snapshot.folder, **options, elsewhere=elsewhere)
        model.name = on_hub.repository + ("" if model.adapter is None else f"+{model.adapter.name}")
        model.source, model.recipe = snapshot.source, Recipe(snapshot.source, options)
    base = None if model.adapter is None else model.adapter.made_for_another(name_or_path)
    if say is not None and base is not None:
        say(f"note: the adapter {adapter} says that it was trained beside {base}, not {name_or_path}")
    return model


def _gguf_model(
    path: Path | None, on_hub: HubName | None, options: dict[str, Any], elsewhere: bool, progress: Download | None
) -> FolderModel:
    """Return the model of the GGUF file at ``path``, or else of the one that ``on_hub`` names as its configuration."""
    from choicewise.models.local.gguf_model import GgufModel

    if path is not None:
        model = GgufModel(path, **options, elsewhere=elsewhere)
        model.recipe = Recipe(str(path.absolute()), options)
        return model
    assert on_hub is not None
    assert on_hub.config is not None
    snapshot = open_snapshot(HubName(on_hub.repository, revision=on_hub.revision), MODEL)
    if on_hub.config not in snapshot.files:
        names = sorted(name for name in snapshot.files if is_gguf(name))
        listed = ", ".join(names) if names else "none"
        raise ModelError(f"{snapshot.source} holds no {on_hub.config}; its GGUF files: {listed}")
    snapshot.download([on_hub.config], progress)
    model = GgufModel(snapshot.folder / on_hub.config, **options, elsewhere=elsewhere)
    commit = snapshot.source.partition("@")[2]
    model.source = f"{on_hub.repository}:{on_hub.config}@{commit}"
    model.recipe = Recipe(model.source, options)
    return model


def _engine_model(name: str, progress: Download | None, **options: Any) -> Model:
    """The model of ``vllm:...``; nothing is started."""
    wanted = EngineName.parse(name)
    for package in ("vllm", "tokenizers", "httpx2"):
        if (spec := find_spec(package)) is None or spec.origin is None:  # a folder of that name is no package
            raise ModelError(f"{name} needs vLLM ({package} is missing); run: {install_line('vllm')}")
    from choicewise.extensions.endpoints.vllm.engine_model import EngineModel

    folder, source = Path(wanted.model), ""
    if wanted.model.startswith(PREFIX):
        folder = _bundled(wanted.model)
    elif not folder.is_dir():
        if folder.exists() or (on_hub := hub_name(wanted.model)) is None:
            raise ModelError(f"there is no model folder {wanted.model}; {_advice(wanted.model)}")
        snapshot, paths = open_hub_model(on_hub, progress)
        snapshot.download(paths, progress)
        folder, source = snapshot.folder, snapshot.source
    model = EngineModel(folder, options=wanted.options, **options)
    if source:
        model.name, model.source = source.partition("@")[0], source
    return model


def _bundled(name: str) -> Path:
    if (folder := bundled_folder(name, MODELS)) is None:
        known = ", ".join(PREFIX + each.name for each in MODELS)
        raise ModelError(f"{name} is not a model; the bundled ones are {known}")
    return folder


def _silent(line: str) -> None:
    """Nobody reads it."""


@cache
def follow() -> None:
    """Where ``torchrun`` started several processes, have all but rank 0 do what that asks of its models, and end here.

    Rank 0 lets them go when it ends.  Errors that all ranks have are said by it alone.
    """
    if ranks() == 1:
        return
    if not is_follower():
        atexit.register(parallel.release)
        return
    from choicewise.models.local.folder_model import FolderModel
    from choicewise.models.local.local_model import SharedModel

    with suppress(ValueError):  # of a thread that is not the main one
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # rank 0 hears it, and torchrun ends the others
    group, models = parallel.joined(), dict[int, FolderModel]()
    while True:
        call, dropped = group.receive()
        if call is None:
            group.agree(0)
            os._exit(0)  # an ordinary end would go on with the script that rank 0 runs
        for number in dropped:
            models.pop(number, None)
        what, number, argument = call
        with suppress(ChoicewiseError):
            if what == "load":
                folder, options = argument
                try:
                    models[number] = FolderModel(folder, **options)
                except ChoicewiseError as error:  # rank 0 has opened it
                    parallel.give_up(str(error))
                models[number].number = number
                _ = models[number].local
            else:
                model = models[number].local
                assert isinstance(model, SharedModel)
                model.ask(what, argument)


def open_hub_model(name: HubName, progress: Download | None = None) -> tuple[Snapshot, list[str]]:
    """The repository of the model ``name`` and the paths of its files that are needed; errors as in `load_model`."""
    if name.config is not None:
        raise ModelError(f"{name}: a model has no configuration {name.config!r}; a revision is written after @")
    snapshot = open_snapshot(name, MODEL)
    weights = [path for path in (_WEIGHTS, INDEX) if path in snapshot.files][:1]
    if not weights:
        raise ModelError(_without_weights(snapshot))
    if weights == [INDEX]:
        snapshot.download(weights, progress)
        weights += (listed := indexed_files(snapshot.folder / INDEX))
        if lacking := [path for path in listed if path not in snapshot.files]:
            raise ModelError(f"{INDEX} of {snapshot.source} lists {lacking[0]}, which is not there")
    return snapshot, [path for path in FILES if path in snapshot.files] + weights


def _advice(name: str) -> str:
    if is_gguf(name):
        return "check the path of the file, or name it on the Hub as ORG/NAME:FILE.gguf"
    if Path(name).is_file():
        return f"it is a file; pass the folder: {Path(name).parent}"
    if organisation := next((each for each, models in _ALONE.items() if name in models), None):
        return f"the model on the Hub is {organisation}/{name}: name it so"
    whole = f"ORG/{name}"
    return (
        "pass a folder with config.json and model.safetensors, a name on the Hub as"
        f" {whole if hub_name(whole) else 'ORG/NAME'} or ORG/NAME@REVISION, or"
        f" one of {', '.join([*FAKES, *(PREFIX + folder.name for folder in MODELS)])}"
    )


def _without_weights(snapshot: Snapshot) -> str:
    pickles = sorted(path for path in snapshot.files if path.endswith(_PICKLES))
    if CONFIG in snapshot.files:
        return (
            f"{snapshot.source} is an adapter; run `hf download {snapshot.name.repository}`, and pass the folder it"
            " names as the adapter of the model that it was trained beside"
        )
    names = sorted(path for path in snapshot.files if is_gguf(path))
    if names and not pickles:
        return f"{snapshot.source} holds GGUF files; name one of them: {snapshot.name.repository}:{names[0]}"
    if not pickles:
        return f"{snapshot.source} holds no model.safetensors; it is no model that transformers reads"
    return (
        f"{snapshot.source} holds no safetensors, and other formats ({', '.join(pickles[:3])}) can run code when"
        f" opened; name a revision that has them, as {snapshot.name.repository}@refs/pr/1 often does, or convert it"
        " where you trust it and pass the folder"
    )
