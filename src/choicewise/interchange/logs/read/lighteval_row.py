"""One row of lighteval's details as an item, in both layouts of its columns.

Until 0.9 (read at huggingface/lighteval@8d9ecd6 and @e469d7e, logging/info_loggers.py, class Detail) a row has the
columns ``example``, ``full_prompt``, ``choices``, ``gold_index``, ``predictions`` (a log-likelihood, or it and whether
it was greedy), ``cont_tokens`` and ``metrics``; releases 0.4 to 0.7 write every cell as the text of a Python value.
Since 0.10 (@3fd1526) it has ``doc``, ``model_response`` and ``metric``.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from choicewise.errors import DataError

LONGEST: Final = 1_000_000
"""Characters of a Python value in a cell: the token ids of a few long prompts."""

_NUMPY: Final = re.compile(r"np\.\w+\(([^()]*)\)")
_NO_LITERAL: Final = re.compile(r"(?<![\w'\"])(-?)(nan|inf)(?![\w'\"])")

COLUMNS: Final = (
    *("example", "full_prompt", "choices", "gold_index", "gold", "predictions", "cont_tokens", "truncated", "metrics"),
    *("specifics", "acc", "acc_norm", "mc1", "mc2", "doc", "model_response", "metric"),
)
"""The columns that are read; token ids of the prompts are not."""


@dataclass(frozen=True, slots=True)
class Detail:
    """A row, whichever layout it came in.  ``predictions``: of the choices, then of the same after the null context."""

    id: str
    question: str
    context: str | None
    choices: Sequence[str]
    gold: Sequence[int]
    predictions: Sequence[Any]
    greedy: Sequence[Any]
    tokens: Sequence[Any]
    truncated: int
    null: str | None
    metrics: Mapping[str, Any]


def detail(row: Mapping[str, Any], number: int, place: str) -> Detail:
    """The row at ``number`` (from 0).  Raises DataError where it is no row of details."""
    if isinstance(row.get("doc"), dict):
        return _since_0_10(row, number)
    if "predictions" not in row:
        raise DataError(f"{place} has neither the column predictions nor doc; it is no row of lighteval's details")
    return _until_0_9(row, number, place)


def _until_0_9(row: Mapping[str, Any], number: int, place: str) -> Detail:
    def cell(name: str) -> Any:
        value = row.get(name)
        return _value(value, f"{place}, column {name}") if isinstance(value, str) else value

    metrics = cell("metrics") or {name: row.get(name) for name in ("acc", "acc_norm", "mc1", "mc2")}
    gold = (
        cell("gold_index") if row.get("gold_index") not in (None, [], "[]") else cell("gold") if _is_index(row) else []
    )
    specifics = cell("specifics") if isinstance(row.get("specifics"), str | dict) else None
    null = specifics.get("unconditioned_query") if isinstance(specifics, dict) else None
    return Detail(
        id=str(number),
        question=_text(row.get("example")) or "",
        context=_text(row.get("full_prompt")),
        choices=_list(cell("choices")),
        gold=_list(gold),
        predictions=_list(cell("predictions")),
        greedy=(),
        tokens=_list(cell("cont_tokens")),
        truncated=sum(each > 0 for each in _list(cell("truncated")) if isinstance(each, int)),
        null=null if isinstance(null, str) else None,
        metrics=metrics if isinstance(metrics, dict) else {},
    )


def _is_index(row: Mapping[str, Any]) -> bool:
    """Whether ``gold`` is an index: where text is generated it is the right text."""
    gold = row.get("gold")
    return isinstance(gold, int) or (isinstance(gold, list) and all(isinstance(each, int) for each in gold))


def _since_0_10(row: Mapping[str, Any], number: int) -> Detail:
    doc, response = row["doc"], row.get("model_response") or {}
    gold = doc.get("gold_index")
    return Detail(
        id=str(doc.get("id") or number),
        question=_text(doc.get("query")) or "",
        context=_text(response.get("input")),
        choices=_list(doc.get("choices")),
        gold=_list(gold) if isinstance(gold, list) else [] if gold is None else [gold],
        predictions=_list(response.get("logprobs")) or _list(response.get("text")),
        greedy=_list(response.get("argmax_logits_eq_gold")),
        tokens=_list(response.get("output_tokens")),
        truncated=int(bool(response.get("truncated_tokens_count"))),
        null=_text(doc.get("unconditioned_query")),
        metrics=row.get("metric") or {},
    )


def _value(cell: str, place: str) -> Any:
    """The Python value that a cell spells, which runs no code; nan is None, as nothing is scored with it."""
    if len(cell) > LONGEST:
        raise DataError(f"{place} holds {len(cell)} characters; a value in it has {LONGEST} at most")
    plain = _NO_LITERAL.sub(lambda match: "None" if match[2] == "nan" else match[1] + "1e999", _NUMPY.sub(r"\1", cell))
    for spelled in (cell, plain):
        try:
            return literal_eval(spelled)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
    raise DataError(f"{place} holds no value of Python: {cell[:40]!r}")


def _text(cell: Any) -> str | None:
    return cell if isinstance(cell, str) else None


def _list(cell: Any) -> Sequence[Any]:
    return cell if isinstance(cell, list | tuple) else ()
