"""The logs of tests/goldens/logs under the names that their tools gave them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.paths import GOLDENS

LOGS = GOLDENS / "logs"


def golden(name: str, to: Path) -> Path:
    """A copy of LOGS/NAME below ``to``, its names as the tool writes them (| and :, which not every system has)."""
    source, copy = LOGS / name, to / Path(name).name
    for file in [source] if source.is_file() else sorted(path for path in source.rglob("*") if path.is_file()):
        target = to / Path(name).name / unquote(str(file.relative_to(source))) if file != source else copy
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    return copy


def edited(file: Path, change: Callable[[Any], Any]) -> Path:
    """The JSON ``file`` after ``change``, which may change its value or give another."""
    value = json.loads(file.read_text(encoding="utf-8"))
    changed = change(value)
    file.write_text(json.dumps(value if changed is None else changed), encoding="utf-8")
    return file
