"""Which column of a file is the question, which are the choices, and how the answer is spelled."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from choicewise.errors import DataError, did_you_mean

ANSWER_IS: Final = ("any", "label", "index", "text", "flags")

RESERVED: Final = ("question", "options", "subject")
"""Names with a meaning in a protocol's templates; another column of such a name has to be renamed."""


@dataclass(frozen=True, slots=True)
class Columns:
    """A declared mapping from the columns of a file to items; a nested column is named by its path, ``question.stem``.

    The choices come from one of three places: ``choices``, either one column that holds a list (of texts, of
    ``{"text", "label"}`` objects, or ``{"text": [...], "label": [...]}``) or several columns with one text each;
    ``fixed``, the same texts for every row; or ``right`` and ``wrong``, columns of the same two kinds that hold the
    right and the wrong choices, in this order.

    ``answer`` is the column of the answer, or of a list of answers, and ``answer_is`` what it holds: a ``label`` (of
    the choice's own labels, else of ``labels``, else A, B, C, ...), an ``index`` from 0, the ``text`` of a choice,
    ``flags`` (a 1 or 0 for every choice), or ``any`` of the first three, which is an error where the file is ambiguous.

    Without ``id`` items are named by subject, split and position.  Every other column is kept in ``Item.fields`` under
    its own name or the one that ``rename`` gives it, and so is a used column that ``rename`` names.  ``drop_empty``
    ignores empty texts of ``right`` and ``wrong``.
    """

    question: str | None = "question"
    choices: str | tuple[str, ...] | None = None
    fixed: tuple[str, ...] = ()
    right: str | tuple[str, ...] | None = None
    wrong: str | tuple[str, ...] | None = None
    answer: str | None = None
    answer_is: str = "any"
    labels: tuple[str, ...] = ()
    id: str | None = None
    subject: str | None = None
    rename: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    drop_empty: bool = False
    used: frozenset[str] = field(init=False, repr=False, compare=False)
    """Every column, or path into one, that an item is made of."""

    def __post_init__(self) -> None:
        sources = (self.question, self.choices, self.right, self.wrong, self.answer, self.id, self.subject)
        named = ((source,) if isinstance(source, str) else source or () for source in sources)
        object.__setattr__(self, "used", frozenset(chain.from_iterable(named)))
        right, wrong = self.right is not None, self.wrong is not None
        if right != wrong:
            raise DataError("a mapping names both right and wrong, or neither")
        if (self.choices is not None) + bool(self.fixed) + right != 1:
            raise DataError("a mapping names its choices once: by choices, by fixed, or by right and wrong")
        if right == (self.answer is not None):
            raise DataError("a mapping needs the column answer, except with right and wrong, which say the answer")
        if self.answer_is not in ANSWER_IS:
            raise DataError(f"answer_is is {self.answer_is!r} in a mapping; it must be one of {', '.join(ANSWER_IS)}")
        if len(set(self.labels)) < len(self.labels):
            raise DataError("the labels of a mapping must differ")


def read_mapping(path: Path) -> Columns:
    """The mapping a TOML file declares; its keys are the fields of `Columns`.

    Raises DataError for a missing or malformed file, an unknown key, or a value of the wrong kind.
    """
    try:
        with path.open("rb") as file:
            declared = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path} can't be read as a mapping in TOML: {error}") from error
    kinds = {spec.name: str(spec.type) for spec in fields(Columns) if spec.init}
    for key in declared:
        if key not in kinds:
            raise DataError(f"{path}: {key!r} is no key of a mapping; {did_you_mean(key, kinds)}")
    values = {key: _checked(value, kinds[key], f"{path}: {key}") for key, value in declared.items()}
    if values.get("question") == "":
        values["question"] = None
    try:
        return Columns(**values)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def _checked(value: object, kind: str, where: str) -> Any:
    if isinstance(value, str) and kind.startswith("str"):
        return value
    if isinstance(value, bool) and kind == "bool":
        return value
    if isinstance(value, list) and "tuple" in kind and value and all(isinstance(part, str) for part in value):
        return tuple(value)
    if isinstance(value, dict) and kind.startswith("Mapping") and all(isinstance(v, str) for v in value.values()):
        return value
    words = {"bool": "true or false", "Mapping[str, str]": "a table of names", "tuple[str, ...]": "a list of texts"}
    texts = "a text or a list of texts" if "tuple" in kind else "a text"
    raise DataError(f"{where} is {value!r}; it must be {words.get(kind, texts)}")
