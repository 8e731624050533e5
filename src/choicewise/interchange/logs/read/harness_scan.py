"""What one reading of all samples of a file says, and whether its results are of these samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from choicewise.errors import DataError
from choicewise.interchange.logs.read.harness_gold import GoldRules, Golds
from choicewise.interchange.logs.read.harness_results import Results
from choicewise.interchange.logs.read.harness_rows import SampleRows
from choicewise.interchange.logs.read.harness_sample import Sample
from choicewise.interchange.logs.recorded import ROUNDING
from choicewise.interchange.logs.verdicts import HARNESS


@dataclass
class Scan:
    """What one reading of all samples says: how right choices are named, and the sums of their metrics.

    ``whole`` and ``bare``: whether every choice is all that was scored, or that without the space it begins with.
    """

    delimiter: str | None
    gold: tuple[str, Golds] = ("", lambda sample, options: None)
    unconditional: bool = False
    whole: bool = True
    bare: bool = True
    items: int = 0
    sums: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    unused: tuple[str, ...] = ()

    @property
    def lengths(self) -> str:
        """Which score divides by the lengths that the harness divides by (lm_eval/api/task.py@4e7e0d4:1494)."""
        if "acc_norm" not in self.sums:
            return ""
        return "char_mean_bare" if self.bare else "char_mean" if self.whole else "none of these scores"

    def options(self, sample: Sample) -> tuple[str, ...] | None:
        """The choices as the data have them: what is scored, without what stands before each."""
        texts = [choice.text for choice in sample.choices]
        known = [text for text in texts if text is not None]
        if len(known) < len(texts):
            return None
        if sample.own_contexts:
            return _differing([choice.context or "" for choice in sample.choices])
        before = " " if self.delimiter is None else self.delimiter
        return tuple(text.removeprefix(before) for text in known)


def _differing(contexts: Sequence[str]) -> tuple[str, ...]:
    """What contexts have of their own, in whole words."""
    words = [context.split(" ") for context in contexts]
    least = min(map(len, words))
    start = next((place for place in range(least) if len({each[place] for each in words}) > 1), least)
    most = least - start
    end = next((place for place in range(most) if len({each[-1 - place] for each in words}) > 1), most)
    return tuple(" ".join(each[start : len(each) - end]) for each in words)


def scan_samples(path: Path, rows: SampleRows, delimiter: Any) -> Scan:
    """``delimiter``: what stands before every choice, where the results say it.  DataError without right choices."""
    scan, rules = Scan(delimiter if isinstance(delimiter, str) else None), GoldRules()
    left_out: dict[str, None] = {}
    for sample in rows:
        options, texts = scan.options(sample) or (), [choice.text or "" for choice in sample.choices]
        rules.add(sample, options)
        scan.whole &= list(options) == texts
        scan.bare &= list(options) == [text.removeprefix(" ") for text in texts]
        scan.unconditional |= any(choice.unconditional is not None for choice in sample.choices)
        scan.items += 1
        left_out |= dict.fromkeys(sample.others)
        for name, value in sample.metrics.items():
            scan.sums[name] += value  # type: ignore[assignment]  # a counter adds floats, too
            scan.counts[name] += 1
    if (rule := rules.chosen) is None:
        raise DataError(f"{path}: it can't be read which choices are right: {rules.objection}")
    scan.gold = rule
    others = [f"filter {name}" for name in rows.others]
    unchecked = sorted(name for name in scan.sums if name not in HARNESS)
    metrics = [f"metrics {', '.join(unchecked)}, which are not checked"] if unchecked else []
    apart = f"acc_norm, whose lengths leave out {scan.delimiter!r} before each choice: no score here does"
    norms = [apart] if scan.lengths and not (scan.whole or scan.bare) and scan.delimiter else []
    no_numbers = [f"metrics {', '.join(sorted(left_out))}, which are no number of an item"] if left_out else []
    scan.unused = (*others, *metrics, *no_numbers, *norms)
    return scan


def check_totals(path: Path, results: Results, task: str, scan: Scan, totals: dict[str, float]) -> None:
    """DataError where the results are not those of the samples."""
    wrong = []
    asked = results.items(task)
    if asked is not None and asked != scan.items:
        wrong.append(f"they are of {asked:,} items, and the samples of {scan.items:,}")
    for name, count in scan.counts.items():
        if name in totals and count == scan.items and results.is_mean(task, name):
            mean = scan.sums[name] / count
            if not abs(mean - totals[name]) <= ROUNDING:
                wrong.append(f"{name} is {totals[name]:.6g} in the results, and {mean:.6g} in the samples")
    if wrong:
        raise DataError(
            f"{results.path} does not match {path.name}: {'; '.join(wrong)}; name the results file of these "
            "samples, or move it away"
        )
