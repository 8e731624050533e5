"""Open the models in a folder or a file, on the Hub, bundled with the package, or fake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from choicewise.bundled import MODELS, PREFIX, bundled_folder
from choicewise.data.hub import MODEL, Download, HubName, Snapshot, hub_name, open_snapshot
from choicewise.errors import ModelError, install_line
from choicewise.models.fake import FAKES
from choicewise.models.local.files import CONFIG, FILES, indexed_files, readable
from choicewise.models.model import Model, Recipe
from choicewise.ports import Loading, ModelFile, find

if TYPE_CHECKING:
    from choicewise.models.local.folder_model import FolderModel

_WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_ALONE = {
    "openai-community": ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "openai-gpt"),
    "distilbert": (
        "distilgpt2",
        "distilbert-base-cased",
        "distilbert-base-uncased",
        "distilroberta-base",
    ),
    "google-bert": (
        "bert-base-cased",
        "bert-base-uncased",
        "bert-large-cased",
        "bert-large-uncased",
    ),
    "FacebookAI": ("roberta-base", "roberta-large", "xlm-roberta-base", "xlm-roberta-large"),
    "google-t5": ("t5-small", "t5-base", "t5-large", "t5-3b", "t5-11b"),
}
"""Organisation on the Hub → its models that people know by a name without it."""

_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack")


def open_local(name: str, loading: Loading) -> Model:
    """Return the model in a folder or a file, on the Hub or bundled. Raises ModelError."""
    model = _open(name, loading)
    if model.adapter is None:
        return model
    base = model.adapter.made_for_another(name)
    if base is not None:
        adapter = loading.options["adapter"]
        loading.say(f"note: the adapter {adapter} was trained for {base}, not for {name}")
    return model


def _open(name: str, loading: Loading) -> FolderModel:
    options = dict(loading.options)
    if "adapter" in options:
        # For another process.
        options["adapter"] = str(Path(options["adapter"]).absolute())
    path = _bundled(name) if name.startswith(PREFIX) else Path(name)
    try:
        is_folder = path.is_dir()
    except OSError as error:
        raise ModelError(f"{name} can't be read: {error.strerror}; check the path") from error
    with readable(path):
        chosen = _model_file(path)
    on_hub = None if path.exists() else hub_name(name)
    if not is_folder and on_hub is None and chosen is None:
        raise _no_folder(name)
    for package in ("torch", "transformers", "tokenizers"):
        if find_spec(package) is None:
            raise ModelError(
                f"{name} needs torch and transformers ({package} is missing); run: "
                f"{install_line('hf')}"
            )
    from choicewise.models.local.folder_model import FolderModel

    if chosen is not None:
        file_format, file = chosen
        model = file_format.open(file, replace(loading, options=options))
        model.recipe = Recipe(str(file.absolute()), options)
        return model
    if on_hub is not None:
        return _open_on_hub(on_hub, options, loading)
    model = FolderModel(path, **options, elsewhere=loading.elsewhere)
    model.recipe = Recipe(name if name.startswith(PREFIX) else str(path.absolute()), options)
    return model


def _format_of(name: str) -> ModelFile | None:
    """Return the format of a model in one file by the ending of the file's name."""
    _, dot, ending = name.rpartition(".")
    return find(ModelFile, ending.lower()) if dot else None


def _model_file(path: Path) -> tuple[ModelFile, Path] | None:
    """Return the format and the file of a model in one file: ``path``, or the file that a folder
    without safetensors holds.

    Raises ModelError if the folder holds several: they are different models, and the choice is the
    user's.
    """
    candidates = [path]
    if path.is_dir():
        if any((path / name).is_file() for name in (_WEIGHTS, INDEX)):
            return None
        candidates = sorted(path.iterdir())
    elif not path.is_file():
        return None
    files: list[tuple[ModelFile, Path]] = []
    parts: list[tuple[ModelFile, Path]] = []
    for file in candidates:
        file_format = _format_of(file.name)
        if file_format is None:
            continue
        kind = parts if file_format.is_part(file.name) else files
        kind.append((file_format, file))
    if len(files) > 1:
        names = ", ".join(file.name for _, file in files)
        # What lies beside a model, as a projector, is smaller.
        file_format, largest = max(files, key=lambda pair: pair[1].stat().st_size)
        raise ModelError(
            f"{path} holds several {file_format.name.upper()} files ({names}); pass one of them: "
            f"{largest}"
        )
    # Parts beside a file are those that it was joined from.
    return next(iter(files or parts), None)


def _open_on_hub(on_hub: HubName, options: Mapping[str, Any], loading: Loading) -> FolderModel:
    """Return the model of a repository on the Hub, of safetensors or of one file."""
    from choicewise.models.local.folder_model import FolderModel

    file_format = _format_of(on_hub.config or "")
    if file_format is not None:
        return _open_file_on_hub(on_hub, file_format, replace(loading, options=options))
    if "trust_remote_code" in options:
        raise ModelError(
            f"code is never fetched from the Hub. Run `hf download {on_hub.repository}`, read the "
            "code "
            "in that folder, and pass the folder"
        )
    snapshot = _download(on_hub, loading.progress)
    model = FolderModel(snapshot.folder, **options, elsewhere=loading.elsewhere)
    model.name = on_hub.repository
    if model.adapter is not None:
        model.name += f"+{model.adapter.name}"
    model.source = snapshot.source
    model.recipe = Recipe(snapshot.source, options)
    return model


def _open_file_on_hub(on_hub: HubName, file_format: ModelFile, loading: Loading) -> FolderModel:
    """Return the model of the file that ``on_hub`` names as its configuration."""
    assert on_hub.config is not None
    snapshot = open_snapshot(HubName(on_hub.repository, revision=on_hub.revision), MODEL)
    if on_hub.config not in snapshot.files:
        names = sorted(name for name in snapshot.files if _format_of(name) is file_format)
        listed = ", ".join(names) if names else "none"
        raise ModelError(
            f"{snapshot.source} holds no {on_hub.config}; its {file_format.name.upper()} files: "
            f"{listed}"
        )
    snapshot.download([on_hub.config], loading.progress)
    model = file_format.open(snapshot.folder / on_hub.config, loading)
    commit = snapshot.source.partition("@")[2]
    model.source = f"{on_hub.repository}:{on_hub.config}@{commit}"
    model.recipe = Recipe(model.source, loading.options)
    return model


def locate_model(name: str, progress: Download | None = None) -> tuple[Path, str]:
    """Return the folder with the files of a model, and its source on the Hub, "" for a folder on
    this machine.

    ``name``: a folder, a bundled model or a name on the Hub, whose files are downloaded. Raises
    ModelError.
    """
    if name.startswith(PREFIX):
        return _bundled(name), ""
    folder = Path(name)
    if folder.is_dir():
        return folder, ""
    on_hub = None if folder.exists() else hub_name(name)
    if on_hub is None:
        raise _no_folder(name)
    snapshot = _download(on_hub, progress)
    return snapshot.folder, snapshot.source


def _bundled(name: str) -> Path:
    folder = bundled_folder(name, MODELS)
    if folder is None:
        names = ", ".join(PREFIX + folder.name for folder in MODELS)
        raise ModelError(f"{name} is not a model; the bundled ones are {names}")
    return folder


def _download(name: HubName, progress: Download | None) -> Snapshot:
    snapshot, paths = open_hub_model(name, progress)
    snapshot.download(paths, progress)
    return snapshot


def open_hub_model(name: HubName, progress: Download | None = None) -> tuple[Snapshot, list[str]]:
    """Return the repository of the model ``name`` and the paths of the files that it needs.

    Raises ModelError if the repository holds no weights that are safe to open.
    """
    if name.config is not None:
        raise ModelError(
            f"{name}: a model has no configuration {name.config!r}; write a revision as @REVISION"
        )
    snapshot = open_snapshot(name, MODEL)
    weights = [path for path in (_WEIGHTS, INDEX) if path in snapshot.files][:1]
    if not weights:
        raise ModelError(_without_weights(snapshot))
    if weights == [INDEX]:
        snapshot.download(weights, progress)
        listed = indexed_files(snapshot.folder / INDEX)
        lacking = [path for path in listed if path not in snapshot.files]
        if lacking:
            raise ModelError(f"{INDEX} of {snapshot.source} lists {lacking[0]}, which is missing")
        weights += listed
    return snapshot, [path for path in FILES if path in snapshot.files] + weights


def _no_folder(name: str) -> ModelError:
    return ModelError(f"there is no model folder {name}; {_advice(name)}")


def _advice(name: str) -> str:
    if "://" in name:
        return f"the model of a server is named server:{name}"
    file_format = _format_of(name)
    if file_format is not None:
        return (
            f"check the path of the file, or name it on the Hub as ORG/NAME:FILE.{file_format.name}"
        )
    if Path(name).is_file():
        return f"it is a file; pass the folder: {Path(name).parent}"
    for organisation, models in _ALONE.items():
        if name in models:
            return f"the Hub has it as {organisation}/{name}; use that name"
    whole = f"ORG/{name}"
    on_hub = whole if hub_name(whole) else "ORG/NAME"
    bundled = [PREFIX + folder.name for folder in MODELS]
    return (
        f"pass a folder with config.json and model.safetensors, a name on the Hub as {on_hub}, or "
        "one of "
        f"{', '.join([*FAKES, *bundled])}"
    )


def _without_weights(snapshot: Snapshot) -> str:
    pickles = sorted(path for path in snapshot.files if path.endswith(_PICKLES))
    if CONFIG in snapshot.files:
        return (
            f"{snapshot.source} is an adapter. Run `hf download {snapshot.name.repository}`, pass "
            "that folder "
            "as the adapter, and the model that it was trained for as the model"
        )
    if not pickles:
        for path in sorted(snapshot.files):
            file_format = _format_of(path)
            if file_format is not None:
                return (
                    f"{snapshot.source} holds {file_format.name.upper()} files; name one of them: "
                    f"{snapshot.name.repository}:{path}"
                )
    if not pickles:
        return (
            f"{snapshot.source} holds no model.safetensors, so transformers can't load it; choose "
            "another model"
        )
    return (
        f"{snapshot.source} holds no safetensors, and opening {', '.join(pickles[:3])} can run "
        "code. Try "
        f"the revision {snapshot.name.repository}@refs/pr/1, or convert the model if you trust it"
    )
