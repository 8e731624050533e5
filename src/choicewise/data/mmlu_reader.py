"""The layout of the original MMLU archive: headerless CSV files ``<split>/<subject>_<split>.csv``.

Columns: question, the choices, the letter of the right one; four choices in MMLU itself.  Source: the data.tar of
github.com/hendrycks/test and the way its ``evaluate.py`` reads it.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from choicewise.data.answer import Answer
from choicewise.data.cell import UnusableRow
from choicewise.data.csv_reader import cells
from choicewise.data.dataset import Dataset, build_dataset
from choicewise.data.item import Item
from choicewise.data.layout import SPLITS
from choicewise.errors import DataError

FOLDERS: Final = ("dev", "val", "test")


def is_mmlu(folder: Path) -> bool:
    """Whether the folder has one of the layout's split folders."""
    return any((folder / name).is_dir() for name in FOLDERS)


def read_mmlu(folder: Path, *, on_bad_item: str = "error") -> Dataset:
    """Every split, subjects in alphabetical order; ids are ``<subject>/<split>/<row>``, row from 0.

    Raises DataError when the test folder is missing or empty, a file is not named after its split or holds no rows,
    and, unless ``on_bad_item`` is ``skip``, for a row without an answer among at least two choices.
    """
    if not (folder / "test").is_dir():
        raise DataError(f"{folder} has no folder test/; the MMLU layout is dev/, val/ and test/ with one CSV a subject")
    return build_dataset(folder.resolve().name, _rows(folder), on_bad_item)


def _rows(folder: Path) -> Iterator[tuple[Path, int, str, Callable[[], Item]]]:
    for name in FOLDERS:
        files = sorted(file for file in (folder / name).glob("*.csv") if not file.name.startswith("."))
        if name == "test" and not files:
            raise DataError(f"{folder / name} holds no <subject>_test.csv")
        for file in files:
            subject, split = file.stem.removesuffix(f"_{name}"), SPLITS[name]
            if subject == file.stem:
                raise DataError(
                    f"{file} is not named <subject>_{name}.csv, so its subject is unknown; rename or remove it"
                )
            rows = cells(file)
            if not rows:
                raise DataError(f"{file} is empty; remove it, or fetch the data again")
            for number, row in enumerate(rows):
                yield file, number, split, partial(_item, f"{subject}/{split}/{number}", subject, row)


def _item(id: str, subject: str, row: list[str]) -> Item:
    if len(row) < 4:
        raise UnusableRow(f"{len(row)} columns; a question, at least two choices and a letter need 4")
    question, *choices, letter = row
    return Item(id, question, tuple(choices), Answer(letter, tuple(choices)).gold("label"), subject)
