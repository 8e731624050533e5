"""A finding in one to three sentences: plain text, the same on the screen and on a page."""

import math
from collections.abc import Sequence

from choicewise.report.lead_text import lead_sentences
from choicewise.report.table import percent
from choicewise.report.visible_text import short
from choicewise.report.words import NAME, REASON, are, count, protocols, sentence
from choicewise.results.finding import Finding, Numbers
from choicewise.results.row import Row


def sentences(finding: Finding) -> list[str]:
    """What the finding says, one to three sentences.

    The spread of the numbers; who leads, where there are several models; what is not shown to be better than
    guessing, or missing.
    """
    gaps, apart = _gaps(finding), _apart(finding)
    if not finding.numbers and apart:
        return apart
    if not finding.count:
        return [_no_number(finding), *apart]
    if finding.guesses == finding.count:
        few = all(each.few for each in finding.numbers if each.count)
        return [*_all_guesses(finding, few), *([sentence(gaps)] if gaps else []), *apart]
    spread = _spread(finding.numbers[0]) if len(finding.models) == 1 == len(finding.datasets) else _spreads(finding)
    told = [*_guesses(finding), *gaps]
    return [spread, *lead_sentences(finding), *([sentence(told)] if told else []), *apart]


def _apart(finding: Finding) -> list[str]:
    """The numbers that are no shares of 1."""
    if not finding.apart:
        return []
    names = " and ".join(dict.fromkeys(row.metric for row in finding.apart))
    one = len(finding.apart) == 1
    return [f"{count(len(finding.apart), 'number')} {'is a' if one else 'are of'} {names}, and stand{'s' * one} apart."]


def _no_number(finding: Finding) -> str:
    rows = sum(each.unmeasured for each in finding.numbers)
    under = "there is nothing to report" if not rows else f"no item was scored {_under(finding, rows, 'any of ')}"
    return ": ".join(["There is no number", ", ".join([under, *_gaps(finding)])]) + "."


def _under(finding: Finding, rows: int, any_: str = "") -> str:
    """Under so many protocols; where a protocol has several rows, one per model or group, in so many of these."""
    several = len(finding.numbers) > 1 or any(each.grouped for each in finding.numbers)
    place, noun = ("in", "row") if several else ("under", "protocol")
    return f"{place} the one {noun}" if any_ and rows == 1 else f"{place} {any_}{count(rows, noun)}"


def _all_guesses(finding: Finding, few: bool) -> list[str]:
    several = f" of {count(len(finding.models), 'model')}" if len(finding.models) > 1 else ""
    low, high = _extremes(finding)
    between = f"{low}" if low == high else f"between {low} and {high}"
    numbers = "the only number is" if finding.count == 1 else f"all {finding.count:,} numbers{several} are"
    values, chance = f"{numbers} {between} on {_items(finding.numbers)}", _chance(finding)
    if few:
        return [f"So few items can't tell any number from guessing{f' ({chance})' if chance else ''}: {values}."]
    shown = f"Not shown to be better than guessing{f' ({chance})' if chance else ''}: {values}."
    edges = [edge for each in finding.numbers if each.count for edge in each.enough]
    if any(map(math.isnan, edges)) or max(edges) > 1:
        return [shown]
    low, high = percent(min(edges)), percent(max(edges))
    some = "" if low == high else f", for some of them {high} %"
    return [shown, f"With so many items only {low} % and more would be{some}."]


def _spread(numbers: Numbers) -> str:
    """One model on one dataset."""
    model, on = short(numbers.model, NAME), _items([numbers])
    lowest, highest = numbers.lowest, numbers.highest
    assert lowest is not None
    assert highest is not None
    if numbers.count == 1:
        interval = f" (95 % interval {percent(lowest.ci_low)} to {percent(lowest.ci_high)} %)"
        known = "" if math.isnan(lowest.ci_low) else interval
        return f"{model} scores {percent(lowest.value)} %{known} on {on} under {_name(lowest, numbers)}."
    if percent(lowest.value) == percent(highest.value):
        return (
            f"{model} scores {percent(lowest.value)} % on {on} under all {protocols(numbers.count, numbers.grouped)}."
        )
    alike = not numbers.grouped and numbers.items[0] == numbers.items[1]
    ways = "how it is asked" if alike else "how it is asked and of what"
    return (
        f"{model} scores between {percent(lowest.value)} % and {percent(highest.value)} % on {on}, depending on {ways} "
        f"({numbers.count:,} numbers, median {percent(numbers.median)} %)."
    )


def _name(row: Row, numbers: Numbers) -> str:
    """What a number is called: by its protocol, and by its group where there are several."""
    protocol = short(row.protocol, NAME)
    return f"{protocol}, {short(row.subject, NAME)}" if numbers.grouped else protocol


def _spreads(finding: Finding) -> str:
    """Several models, or several datasets: that of the leader where one dataset has a leader, else that of all."""
    if len(finding.datasets) == 1 and finding.leads:
        best = finding.leads[0].models[0]
        return _spread(next(each for each in finding.numbers if each.model == best))
    low, high = _extremes(finding)
    about = count(len(finding.models), "model") if len(finding.models) > 1 else short(finding.models[0], NAME)
    datasets = len(finding.datasets)
    on = f"{datasets} datasets" if datasets > 1 else _items(finding.numbers)
    return f"{count(finding.count, 'number')} of {about} on {on} lie between {low} and {high}."


def _guesses(finding: Finding) -> list[str]:
    """How many of the numbers are no better than guessing; nothing where nothing can be guessed."""
    if all(math.isnan(each.chance) for each in finding.numbers):
        return []
    return [_guessed(finding)]


def _guessed(finding: Finding) -> str:
    if not finding.guesses:
        return "the number is better than guessing" if finding.count == 1 else "every number is better than guessing"
    numbers, models = count(finding.count, "number"), len(finding.models)
    every = f"the {numbers} of the {models} models" if models > 1 else numbers
    told = f"{finding.guesses:,} of {every} {are(finding.guesses)} not shown to be better than guessing"
    chance = _chance(finding)
    return f"{told} ({chance})" if chance else told


def _gaps(finding: Finding) -> list[str]:
    """What is missing, if anything."""
    parts = []
    row, unmeasured = finding.missing, sum(each.unmeasured for each in finding.numbers)
    if row is not None:
        most, protocol = f"{row.missing:,} of {count(row.n + row.missing, 'item')}", short(row.protocol, NAME)
        if finding.lacking == 1:
            reason = "".join(f": {short(reason.reason, REASON)}" for reason in row.missing_reasons[:1])
            parts.append(f"{most} {are(row.missing)} missing under {protocol}{reason}")
        else:
            where = _under(finding, finding.lacking)
            parts.append(f"items are missing {where}, most under {protocol} ({most})")
    if unmeasured and finding.count:
        parts.append(f"there is no number {_under(finding, unmeasured)}")
    return [*parts, *(f"a run is {part}" for part in finding.incomplete)]


def _items(numbers: Sequence[Numbers]) -> str:
    """How many items, and of which dataset."""
    least, most = min(each.items[0] for each in numbers), max(each.items[1] for each in numbers)
    items = count(most, "item") if least == most else f"{least:,} to {most:,} items"
    names = dict.fromkeys(each.dataset for each in numbers)
    each = " a group" if any(own.grouped for own in numbers) else ""
    return items + each if len(names) > 1 else f"{items}{each} of {short(next(iter(names)), NAME)}"


def _extremes(finding: Finding) -> tuple[str, str]:
    lows = [each.lowest.value for each in finding.numbers if each.lowest]
    highs = [each.highest.value for each in finding.numbers if each.highest]
    return f"{percent(min(lows))} %", f"{percent(max(highs))} %"


def _chance(finding: Finding) -> str:
    """What guessing gives, where it is the same everywhere."""
    chances = {percent(each.chance) for each in finding.numbers if each.count and not math.isnan(each.chance)}
    return f"{chances.pop()} %" if len(chances) == 1 else ""
