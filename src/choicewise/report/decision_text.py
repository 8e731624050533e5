"""What the protocols decide about an item: those that decide alike together."""

import math
from collections.abc import Iterable, Iterator, Sequence

from choicewise.report.visible_text import short
from choicewise.report.words import NAME, REASON, count
from choicewise.results.explanation import ItemDecision
from choicewise.results.measurement import UNLISTED


def decision_lines(decided: Sequence[ItemDecision]) -> Iterator[str]:
    """A line for every choice that protocols decide for, the one with most of them first, and what is undecided."""
    alike: dict[tuple[int, str], list[ItemDecision]] = {}
    for each in decided:
        verdict = _verdict(each)
        alike.setdefault((-1 if math.isnan(each.credit) else each.prediction, verdict), []).append(each)
    names = [each.protocol for each in decided]
    for (prediction, verdict), own in sorted(alike.items(), key=lambda group: -len(group[1])):
        choose = "choose" if len(own) > 1 else "chooses"
        what = f"{choose} {prediction} ({verdict})" if prediction >= 0 else f"{choose} nothing ({verdict})"
        protocols = count(len(decided), "protocol")
        yield f"{len(own)} of {protocols} {what}: {', '.join(_together([each.protocol for each in own], names))}"
    tied = [each.protocol for each in decided if each.tied]
    near = [each.protocol for each in decided if each.near_tie and not each.tied]
    for words, doubted in (("exact ties", tied), ("within the numeric noise", near)):
        if doubted:
            yield f"{words}: {', '.join(_together(doubted, names))}"


def together(names: Sequence[str]) -> str:
    """Protocols in a few words: what their names have in common, or the first, and how many they are."""
    if len(names) == 1:
        return short(names[0], NAME)
    stems = _by_stem(names)
    if len(stems) == 1:
        return f"{short(next(iter(stems)), NAME)} ({len(names)} protocols)"
    return f"{short(names[0], NAME)} and {count(len(names) - 1, 'other')}"


def _together(chosen: Sequence[str], every: Sequence[str]) -> Iterator[str]:
    """The names, those with a common beginning together: all of them counted, some of them by their ends."""
    for stem, own in _by_stem(chosen).items():
        others = [name for name in _by_stem(every)[stem] if name not in own]
        if len(own) == 1:
            yield short(own[0], NAME)
        elif not others:
            yield f"{short(stem, NAME)} (all {len(own)})"
        else:
            but = "all but " if len(others) < len(own) else ""
            ends = (short(name[len(stem) + 1 :], NAME) for name in (others if but else own))
            yield f"{short(stem, NAME)} ({but}{' '.join(ends)})"


def _by_stem(names: Iterable[str]) -> dict[str, list[str]]:
    stems: dict[str, list[str]] = {}
    for name in names:
        stems.setdefault(_stem(name), []).append(name)
    return stems


def end(name: str, names: Sequence[str]) -> str:
    """What tells ``name`` from ``names``, among which it is: what follows their common beginning, or all of it."""
    stem = _stem(name)
    return name[len(stem) + 1 :] if len(names) > 1 and len(_by_stem(names)) == 1 else name


def _stem(name: str) -> str:
    """The name without the score that is written after a colon."""
    return name.rpartition(":")[0] or name


def _verdict(decided: ItemDecision) -> str:
    if math.isnan(decided.credit):
        # other reasons stand at the prompt
        return f"missing: {short(decided.missing, REASON)}" if decided.missing in UNLISTED else "missing"
    return {1.0: "right", 0.0: "wrong"}.get(decided.credit, f"credit {decided.credit:.3f}")
