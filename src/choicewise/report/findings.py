"""What a finding says, in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Group

from choicewise.report.tables import rank_matrix, with_rank
from choicewise.results.finding import (
    NAMED,
    Finding,
    Lead,
    Numbers,
    Reversal,
    ReversalContest,
    Turn,
)
from choicewise.results.guessing import FEWEST, Guessing
from choicewise.results.rows import Row
from choicewise.util.text import (
    NAME,
    REASON,
    SEVERAL,
    are,
    counted,
    percent,
    probability,
    protocols,
    sentence,
    short,
)


def sentences(finding: Finding) -> list[str]:
    """What the finding says, one to three sentences.

    The spread of the numbers; who leads, where there are several models; what is not shown to be better than
    guessing, or missing.
    """
    missing, other_metrics = gaps(finding), _other_metrics(finding)
    if not finding.numbers and other_metrics:
        return other_metrics
    if not finding.count:
        return [_no_number(finding), *other_metrics]
    against = finding.guessing
    if (
        against.scores == finding.count
        and not against.better
        and (against.few or not against.beating)
    ):
        return [
            *_all_guesses(finding, against),
            *([sentence(missing)] if missing else []),
            *other_metrics,
        ]
    spread = (
        _spread(finding.numbers[0])
        if len(finding.models) == 1 == len(finding.datasets)
        else _spreads(finding)
    )
    told = [*_guesses(finding, against), *missing]
    return [
        spread,
        *lead_sentences(finding, "it"),
        *([sentence(told)] if told else []),
        *other_metrics,
    ]


def guessing_sentences(against: Guessing) -> list[str]:
    """Return whether the scores of a run are better than guessing, and from which accuracy on they would be."""
    about = _guessing(against)
    questions = _questions(against)
    needed = _needed(against)
    if against.few:
        return [f"{_too_few(against)}.", _more_questions(against)]
    if not against.better and not against.beating:
        least = [f"With {questions} you would need at least {needed}."] if needed else []
        return [f"No better than {about}.", *least]
    if not against.better:
        return [f"{_by_luck(against)}."]
    ways = (
        ""
        if against.better == against.scores
        else f" in {against.better:,} of {against.scores:,} ways"
    )
    least = [f"With {questions} that takes at least {needed}."] if needed else []
    return [f"Better than {about}{ways}.", *least]


def _guessing(against: Guessing) -> str:
    """Name guessing, with the accuracy it is expected to have where that is the same everywhere."""
    low, high = map(_whole, against.chances)
    return f"guessing ({low} %)" if low == high else "guessing"


def _questions(against: Guessing) -> str:
    least, most = against.questions
    return counted(most, "question") if least == most else "so many questions"


def _needed(against: Guessing) -> str:
    """Say which accuracy a score needs at least; nothing where that is not known, or no accuracy is enough."""
    low, high = against.needed
    if math.isnan(low) or high > 1:
        return ""
    least = _whole(low)
    most = _whole(high)
    return f"{least} %" if least == most else f"{least} to {most} %"


def _too_few(against: Guessing) -> str:
    most = against.questions[1]
    return f"{counted(most, 'question')} {are(most)} too few to call any score better than {_guessing(against)}"


def _more_questions(against: Guessing) -> str:
    return f"Ask at least {FEWEST}." if against.questions[1] < FEWEST else "Ask more."


def _by_luck(against: Guessing) -> str:
    """Say that scores lie above guessing of which none does so after the correction for all."""
    beat = "beats" if against.beating == 1 else "beat"
    needed = _needed(against)
    needs = f" (needs {needed})" if needed else ""
    doubt = (
        "about what chance alone gives"
        if against.lucky
        else "but none clearly enough for so many tries"
    )
    return (
        f"{against.beating:,} of {counted(against.scores, 'score')} {beat} guessing{needs}, {doubt}"
    )


def _whole(share: float) -> str:
    """Return a share of 1 in percent, with a decimal only where it is not 0."""
    return percent(share).removesuffix(".0")


def turn_text(turn: Turn) -> str:
    """Of how many protocols the model leads with what tells best where it does, and of how many others."""
    values = ", ".join(short(value, NAME // 2) for value in turn.values[:SEVERAL])
    more = f" and {len(turn.values) - SEVERAL} more" if len(turn.values) > SEVERAL else ""
    axis = "" if turn.axis == "family" else f"{turn.axis} "
    others = f"{_of(turn.otherwise, turn.others)} other{'' if turn.others == 1 else 's'}"
    return f"{_of(turn.first, turn.count)} with {axis}{values}{more}, {others}"


def reversal_table(reversal: Reversal, rows: Sequence[Row]) -> Group:
    """The two protocols in columns, every model in a row: percent and rank.  ``rows``: ranked, of all runs."""
    protocols = reversal.start.protocol, reversal.end.protocol
    values = {
        (row.model, row.protocol): with_rank(row) for row in rows if row.subject == rows[0].subject
    }
    models = dict.fromkeys(model for model, _ in values)
    cells = {
        model: {name: values[model, name] for name in protocols if (model, name) in values}
        for model in models
    }
    return rank_matrix(
        f"{short(reversal.dataset, NAME)}: two published ways to ask, % and rank", cells
    )


def reversal_sentence(reversal: Reversal) -> str:
    """Which of the two is better under which protocol, by how much, and how sure that is."""
    start, end = reversal.start, reversal.end
    questions = (
        counted(start.n, "question")
        if start.n == end.n
        else f"{start.n:,} and {counted(end.n, 'question')}"
    )
    mcnemar = all(each.test.exact and not each.test.by_tie for each in (start, end))
    return (
        f"{short(reversal.left, NAME)} is better than {short(reversal.right, NAME)} under {_values(start)}, and worse "
        f"under {_values(end)}: {'McNemar' if mcnemar else 'paired sign-flip'} tests over {questions}, corrected for "
        f"all {counted(reversal.tests, 'comparison')} of two models."
    )


def _other_metrics(finding: Finding) -> list[str]:
    """The numbers that are no shares of 1."""
    if not finding.other_metrics:
        return []
    names, number = (
        " and ".join(dict.fromkeys(row.metric for row in finding.other_metrics)),
        len(finding.other_metrics),
    )
    are_of, stand = ("is a", "stands") if number == 1 else ("are of", "stand")
    return [f"{counted(number, 'number')} {are_of} {names}, and {stand} apart."]


def _no_number(finding: Finding) -> str:
    rows = sum(each.unmeasured for each in finding.numbers)
    under = (
        "there is nothing to report"
        if not rows
        else f"no item was scored {_under(finding, rows, 'any of ')}"
    )
    return ": ".join(["There is no number", ", ".join([under, *gaps(finding)])]) + "."


def _under(finding: Finding, rows: int, any_: str = "") -> str:
    """Under so many protocols; where a protocol has several rows, one per model or group, in so many of these."""
    several = len(finding.numbers) > 1 or any(each.grouped for each in finding.numbers)
    place, noun = ("in", "row") if several else ("under", "protocol")
    return (
        f"{place} the one {noun}" if any_ and rows == 1 else f"{place} {any_}{counted(rows, noun)}"
    )


def _all_guesses(finding: Finding, against: Guessing) -> list[str]:
    several = f" of {counted(len(finding.models), 'model')}" if len(finding.models) > 1 else ""
    low, high = _extremes(finding)
    between = f"{low}" if low == high else f"between {low} and {high}"
    numbers = (
        "the only number is"
        if finding.count == 1
        else f"all {finding.count:,} numbers{several} are"
    )
    values = f"{numbers} {between} on {_items(finding.numbers)}"
    first, *rest = guessing_sentences(against)
    return [f"{first.removesuffix('.')}: {values}.", *rest]


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
        all_protocols = protocols(numbers.count, numbers.grouped)
        return f"{model} scores {percent(lowest.value)} % on {on} under all {all_protocols}."
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
    about = (
        counted(len(finding.models), "model")
        if len(finding.models) > 1
        else short(finding.models[0], NAME)
    )
    datasets = len(finding.datasets)
    on = f"{datasets} datasets" if datasets > 1 else _items(finding.numbers)
    return f"{counted(finding.count, 'number')} of {about} on {on} lie between {low} and {high}."


def _guesses(finding: Finding, against: Guessing) -> list[str]:
    """Say how many of the numbers are no better than guessing; nothing where nothing can be guessed."""
    if not against.scores:
        return []
    if against.few:
        return [_too_few(against)]
    if against.beating and not against.better:
        return [_by_luck(against)]
    noun = "number" if against.scores == finding.count else "accuracy"
    if not against.guesses:
        return [f"{'the' if against.scores == 1 else 'every'} {noun} is better than guessing"]
    numbers = counted(against.scores, noun, "accuracies" if noun == "accuracy" else None)
    models = len(finding.models)
    every = f"the {numbers} of the {models} models" if models > 1 else numbers
    return [
        f"{against.guesses:,} of {every} {are(against.guesses)} no better than {_guessing(against)}"
    ]


def gaps(finding: Finding) -> list[str]:
    """What is missing, if anything."""
    parts = []
    row = finding.missing
    unmeasured = sum(each.unmeasured for each in finding.numbers)
    if row is not None and (row.n or finding.lacking == 1 or not finding.count):
        most, protocol = (
            f"{row.missing:,} of {counted(row.n + row.missing, 'item')}",
            short(row.protocol, NAME),
        )
        if finding.lacking == 1:
            reason = "".join(
                f": {short(reason.reason, REASON)}" for reason in row.missing_reasons[:1]
            )
            parts.append(f"{most} {are(row.missing)} missing under {protocol}{reason}")
        else:
            where = _under(finding, finding.lacking)
            parts.append(f"items are missing {where}, most under {protocol} ({most})")
    said = row is not None and not row.n and finding.lacking == 1
    if unmeasured and finding.count and not said:
        parts.append(f"there is no number {_under(finding, unmeasured)}")
    return [*parts, *(f"a run is {part}" for part in finding.incomplete)]


def _items(numbers: Sequence[Numbers]) -> str:
    """How many items, and of which dataset."""
    least, most = min(each.items[0] for each in numbers), max(each.items[1] for each in numbers)
    items = counted(most, "item") if least == most else f"{least:,} to {most:,} items"
    names = dict.fromkeys(each.dataset for each in numbers)
    each = " a group" if any(own.grouped for own in numbers) else ""
    return items + each if len(names) > 1 else f"{items}{each} of {short(next(iter(names)), NAME)}"


def _extremes(finding: Finding) -> tuple[str, str]:
    lows = [each.lowest.value for each in finding.numbers if each.lowest]
    highs = [each.highest.value for each in finding.numbers if each.highest]
    return f"{percent(min(lows))} %", f"{percent(max(highs))} %"


def lead_sentences(finding: Finding, subject: str = "") -> list[str]:
    """Who leads, and what that turns on: one sentence, or none where there is one model.

    ``subject``: what the sentence calls the first model of the only dataset, its name unless given.
    """
    if len(finding.models) == 1:
        return []
    if not finding.leads and finding.other_items:
        return ["The models scored too different questions, so they have no order."]
    if not finding.leads:
        return ["No two models were measured the same way, so they have no order."]
    if len(finding.datasets) == 1:
        (lead,) = finding.leads
        turn = [turn_text(lead.turn)] if lead.turn and lead.leader else []
        said = ": ".join([_lead(lead, subject or short(lead.models[0], NAME)), *turn])
        return [sentence([said]) if subject else f"{said}."]
    parts = [
        f"on {short(each.dataset, NAME)} {_lead(each, short(each.models[0], NAME))}"
        for each in finding.leads[:SEVERAL]
    ]
    more = len(finding.leads) - SEVERAL
    return [
        sentence(
            [*parts, *([f"{counted(more, 'dataset')} more in the tables"] if more > 0 else [])]
        )
    ]


def _lead(lead: Lead, best: str) -> str:
    """``best``: what the sentence calls the model that leads."""
    every, all_ = protocols(lead.contests, lead.grouped), _all(lead)
    rivals = (
        short(lead.models[1], NAME)
        if len(lead.models) == 2
        else f"the {len(lead.models) - 1} other models"
    )
    if lead.items < FEWEST:
        return f"{counted(lead.items, 'question')} {are(lead.items)} too few to say which model is better"
    if not lead.alone and lead.open:
        return f"answers that were cut leave open which model is ahead under {all_ if lead.contests == 1 else every}"
    if not lead.alone and len(lead.models) == 2 and lead.tied == lead.contests:
        return f"both models score exactly the same under {all_}"
    if not lead.alone:
        return f"no model is ahead of all others under {all_ if lead.contests == 1 else f'any of {every}'}"
    ties = f" (tied under {lead.tied})" if lead.tied > lead.open else ""
    ties = f" (open under {lead.open}, as answers were cut)" if lead.open else ties
    if lead.leader is None:
        names = [short(each, NAME) for each in (lead.models[0], *lead.level)]
        named = " and ".join(names) if len(names) <= SEVERAL else f"{len(names)} models"
        return f"no model leads: {named} are each ahead of all others under {lead.alone} of {every}"
    sure = _significance(lead)
    if lead.alone == lead.contests:
        order = "holds, too" if lead.same_order else "changes"
        others = "" if len(lead.models) == 2 else f"; the order of the others {order}"
        return f"{best} is ahead of {rivals} under {all_}{sure}{others}"
    said = f"{best} leads {rivals} under {lead.alone} of {every}{ties}{sure}"
    if 0 < len(lead.behind) <= NAMED:
        said += f", but not under {' and '.join(short(name, NAME) for name in lead.behind)}"
    return said


def _significance(lead: Lead) -> str:
    """How many of the leads are significant; nothing where they were not tested."""
    if lead.significant is None:
        return ""
    if lead.alone == 1:
        return ", significantly" if lead.significant else ", not significantly"
    if lead.significant == lead.alone:
        return ", each significantly"
    return f", significantly under {lead.significant or 'none'}"


def _of(first: int, count: int) -> str:
    """So many of ``count``."""
    if count == 1:
        return "the one" if first else "not the one"
    return f"all {count}" if first == count else f"{first or 'none'} of the {count}"


def _all(lead: Lead) -> str:
    return (
        "the one protocol"
        if lead.contests == 1
        else f"all {protocols(lead.contests, lead.grouped)}"
    )


def _values(contest: ReversalContest) -> str:
    values = f"{percent(contest.left)} % against {percent(contest.right)} %"
    return f"{short(contest.protocol, NAME)}, {values} ({probability(contest.p)})"
