"""Where Every Eval Ever keeps a record (evaleval/every_eval_ever 0.3.0, helpers/io.py): ids and parts of paths."""

import hashlib
import re
from uuid import UUID

from choicewise.interchange.write.file_names import LONGEST, file_name
from choicewise.records.manifest import Manifest

LOCAL = "local"
"""The developer of models whose names say none: the data store needs one."""

_UNSAFE = re.compile(r'[<>:"\\|?*\x00-\x1f]')


def model_id(manifest: Manifest) -> str:
    """The model's name: on the Hub, its repository."""
    return manifest.model.name.strip("/ ") or "unnamed"


def record_folder(collection: str, model: str) -> tuple[str, str, str]:
    """(collection, developer, model) as three folders; the developer is what stands before the first slash."""
    developer, slash, name = model.partition("/")
    if not slash:
        developer, name = LOCAL, model
    return _part(collection), _part(developer), _part(name)


def record_uuid(text: str) -> UUID:
    """A UUID of version 4, as the data store asks for, that is always the same for the same text."""
    return UUID(bytes=hashlib.sha256(text.encode()).digest()[:16], version=4)


def _part(name: str) -> str:
    """A name as one folder: slashes and colons become ``_``, as in the data store; the rest must be safe anywhere."""
    flat = name.replace("/", "_").replace(":", "_")
    plain = not _UNSAFE.search(flat) and not flat.endswith((".", " ")) and len(flat.encode()) <= LONGEST
    return flat if plain and file_name(flat).casefold() == flat.casefold() else file_name(flat)
