"""The files of lm-evaluation-harness 0.4: which are samples, which are results, and which belong together."""

from __future__ import annotations

from pathlib import Path

from choicewise.errors import DataError
from choicewise.interchange.logs.read.harness_results import SAMPLES
from choicewise.interchange.logs.read.lines import HEAD, first_object


def recognises(path: Path) -> bool:
    """Whether it is a file of samples or results, or a folder with samples."""
    if path.is_dir():
        return any(map(_is_samples, _files(path)))
    return path.is_file() and (_is_samples(path) or _is_results(path))


def _is_samples(path: Path) -> bool:
    if begins_a_list(path):
        return True
    row = first_object(path)
    return bool({"doc_id", "resps"} <= row.keys()) or (not row and _cut_off(path))


def _cut_off(path: Path) -> bool:
    """Whether it begins as a sample whose first line is cut off, or too long to be looked at whole."""
    start = _start(path)
    return SAMPLES.fullmatch(path.stem) is not None and start.startswith('{"doc_id"')


def begins_a_list(path: Path) -> bool:
    """Whether it is one JSON list of samples, as 0.4.0 wrote them."""
    start = _start(path)
    return start.startswith("[") and '"doc_id"' in start and '"resps"' in start


def _start(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(HEAD).decode(errors="replace").lstrip("\ufeff \n\r\t")
    except OSError:
        return ""


def _is_results(path: Path) -> bool:
    start = _start(path)
    return path.suffix == ".json" and start.startswith("{") and '"results"' in start[:200]


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in (".jsonl", ".json") and path.is_file())


def samples_of(path: Path) -> list[Path]:
    """The files of samples that ``path`` names: itself, those in it, or those of a results file."""
    if path.is_dir():
        files = [each for each in _files(path) if _is_samples(each)]
        if not files:
            raise DataError(
                f"{path} holds no samples of lm-evaluation-harness; it writes them where samples are logged"
            )
        return files
    if _is_samples(path) or not _is_results(path):
        return [path]
    date = path.stem.removeprefix("results_")
    files = [each for each in _files(path.parent) if each.stem.endswith(date) and _is_samples(each)]
    if not files:
        raise DataError(
            f"{path} holds totals alone, and no samples of the same run lie beside it: there is nothing to score again"
        )
    return files
