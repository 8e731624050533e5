"""The tokenizer of a served model: named, or where the server says that its weights come from."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from choicewise.bundled import MODELS, PREFIX, bundled_folder
from choicewise.data.download_bars import Download
from choicewise.data.hub import open_snapshot
from choicewise.data.hub_errors import MODEL
from choicewise.data.hub_name import hub_name
from choicewise.errors import ChoicewiseError, ModelError
from choicewise.models.hub import FILES
from choicewise.models.server.server_facts import ServerFacts
from choicewise.tokens.tokenizer import ByteTokenizer, Tokenizer

BYTES = "bytes"
"""The name of the tokenizer whose tokens are bytes."""

_ADVICE = "name the tokenizer: a model folder, a name on the Hub as ORG/NAME, or bundled:NAME"


def named_tokenizer(name: str, progress: Download | None = None) -> Tokenizer:
    """The tokenizer called ``name``: of a folder, of a model on the Hub, ``bundled:...`` or ``bytes``.

    Raises ModelError where there is none.
    """
    if name == BYTES:
        return ByteTokenizer()
    if name.startswith(PREFIX):
        if (bundled := bundled_folder(name, MODELS)) is None:
            known = ", ".join(PREFIX + folder.name for folder in MODELS)
            raise ModelError(f"{name} is no bundled model; these are {known}")
        return _read(bundled)
    if Path(name).is_dir():
        return _read(Path(name))
    if (on_hub := hub_name(name)) is None:
        raise ModelError(f"there is no tokenizer {name}; {_ADVICE}")
    snapshot = open_snapshot(on_hub, MODEL)
    snapshot.download([path for path in FILES if path in snapshot.files], progress)
    return _read(snapshot.folder)


def served_tokenizer(served: ServerFacts, progress: Download | None = None) -> tuple[Tokenizer, str]:
    """The tokenizer of what the server says that it serves, and its name; ModelError where that can't be had here."""
    problems = list[str]()
    for name in dict.fromkeys(filter(None, (served.root, served.model))):
        try:
            if Path(name).is_dir() or (hub_name(name) is not None and not name.startswith("/")):
                return named_tokenizer(name, progress), name
        except (ChoicewiseError, OSError) as error:
            problems.append(f"{name}: {error}")
    reason = f" ({'; '.join(problems)})" if problems else ""
    raise ModelError(f"the tokenizer of the served model {served.model} is not on this machine{reason}; {_ADVICE}")


def _read(folder: Path) -> Tokenizer:
    if find_spec("tokenizers") is None:
        raise ModelError("a tokenizer needs the package tokenizers; run: pip install 'choicewise[server]'")
    from choicewise.models.local.hf_tokenizer import HfTokenizer
    from choicewise.tokens.partwise_tokenizer import PartwiseTokenizer

    tokenizer = HfTokenizer(folder)
    return PartwiseTokenizer(tokenizer, tokenizer.cut)
