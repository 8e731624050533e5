"""Write what was found in the numbers of runs as sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
from choicewise.results.number import Number
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
    """Return one to three sentences about a finding.

    They give the spread of the numbers; who leads, if there are several models; what is not better
    than guessing; and what is missing.
    """
    other_metrics = _other_metrics(finding)
    if not finding.numbers and other_metrics:
        return other_metrics
    if not finding.count:
        return [_no_number(finding), *other_metrics]
    if is_guessed(finding):
        parts = _all_guesses(finding)
    else:
        parts = [_spreads(finding), *lead_sentences(finding, "it")]
    return [*parts, *doubts(finding), *other_metrics]


def is_guessed(finding: Finding) -> bool:
    """Check that no number is better than guessing."""
    guessing = finding.guessing
    if guessing.scores != finding.count or guessing.better:
        return False
    return guessing.few or not guessing.beating


def doubts(finding: Finding) -> list[str]:
    """Return how many of the numbers are guesses and what is missing: one sentence, or none."""
    clauses = gaps(finding)
    if not is_guessed(finding):
        clauses = [*_guesses(finding), *clauses]
    if not clauses:
        return []
    return [sentence(clauses)]


def guessing_sentences(guessing: Guessing) -> list[str]:
    """Return if the scores of a run are better than guessing, and from which accuracy on they would
    be.
    """
    questions = _questions(guessing)
    needed = _needed(guessing)
    if guessing.few:
        advice = f"Ask at least {FEWEST}." if guessing.questions[1] < FEWEST else "Ask more."
        return [f"{_too_few(guessing)}.", advice]
    if guessing.better:
        text = f"Better than {_guessing(guessing)}"
        if guessing.better < guessing.scores:
            text += f" in {guessing.better:,} of {guessing.scores:,} scores"
        least = f"With {questions} you need at least {needed}."
    elif guessing.beating:
        return [f"{_by_luck(guessing)}."]
    else:
        text = f"No better than {_guessing(guessing)}"
        least = f"With {questions} you would need at least {needed}."
    if not needed:
        return [f"{text}."]
    return [f"{text}.", least]


def _guessing(guessing: Guessing) -> str:
    """Name guessing, with the accuracy it is expected to have if that is the same for all scores."""
    low, high = map(_whole, guessing.chances)
    if low == high:
        return f"guessing ({low} %)"
    return "guessing"


def _questions(guessing: Guessing) -> str:
    least, most = guessing.questions
    if least == most:
        return counted(most, "question")
    return "so many questions"


def _needed(guessing: Guessing) -> str:
    """Return the accuracy that a score needs at least.

    An empty text if it is unknown, or no accuracy is enough.
    """
    low, high = guessing.needed
    if math.isnan(low) or high > 1:
        return ""
    least = _whole(low)
    most = _whole(high)
    if least == most:
        return f"{least} %"
    return f"{least} to {most} %"


def _too_few(guessing: Guessing) -> str:
    count = guessing.questions[1]
    return (
        f"{counted(count, 'question')} {are(count)} too few to call any score better than "
        f"{_guessing(guessing)}"
    )


def _by_luck(guessing: Guessing) -> str:
    """Return how many scores lie above guessing, if none does after the correction for all of them."""
    beat = "beats" if guessing.beating == 1 else "beat"
    needed = _needed(guessing)
    needs = f" (needs {needed})" if needed else ""
    doubt = "but none by enough for so many tries"
    if guessing.lucky:
        doubt = "about what chance alone gives"
    scores = counted(guessing.scores, "score")
    return f"{guessing.beating:,} of {scores} {beat} guessing{needs}, {doubt}"


def _whole(share: float) -> str:
    """Return a share of 1 in percent, with a decimal only if it is not 0."""
    return percent(share).removesuffix(".0")


def turn_text(turn: Turn) -> str:
    """Return of how many protocols the model leads with the values that tell best, and of how many
    others.
    """
    values = ", ".join(short(value, NAME // 2) for value in turn.values[:SEVERAL])
    if len(turn.values) > SEVERAL:
        values += f" and {len(turn.values) - SEVERAL} more"
    axis = "" if turn.axis == "family" else f"{turn.axis} "
    others = "other" if turn.others == 1 else "others"
    first = _part_of(turn.first, turn.count)
    return f"{first} with {axis}{values}, {_part_of(turn.otherwise, turn.others)} {others}"


def reversal_sentence(reversal: Reversal) -> str:
    """Return which of two models is better under which protocol, by how much, and how sure that is."""
    start = reversal.start
    end = reversal.end
    questions = counted(end.n, "question")
    if start.n != end.n:
        questions = f"{start.n:,} and {questions}"
    test = "McNemar"
    if not (start.test.is_mcnemar and end.test.is_mcnemar):
        test = "paired sign-flip"
    return (
        f"{short(reversal.left, NAME)} is better than {short(reversal.right, NAME)} under "
        f"{_contest(start)}, and worse under {_contest(end)}: {test} tests over {questions}, "
        f"corrected for all {counted(reversal.tests, 'comparison')} of two models."
    )


def _contest(contest: ReversalContest) -> str:
    values = f"{percent(contest.left)} % against {percent(contest.right)} %"
    return f"{short(contest.protocol, NAME)}, {values} ({probability(contest.p)})"


def _other_metrics(finding: Finding) -> list[str]:
    """Return how many numbers are no shares of 1, as a sentence if there are any."""
    rows = finding.other_metrics
    if not rows:
        return []
    names = " and ".join(dict.fromkeys(row.identity.metric for row in rows))
    number = counted(len(rows), "number")
    if len(rows) == 1:
        return [f"{number} is a {names}, shown separately."]
    return [f"{number} are {names}, shown separately."]


def _no_number(finding: Finding) -> str:
    count = sum(numbers.unmeasured for numbers in finding.numbers)
    reason = "nothing to report"
    if count == 1:
        preposition, noun = _under_words(finding)
        reason = f"no item was scored {preposition} the only {noun}"
    elif count:
        preposition, noun = _under_words(finding)
        reason = f"no item was scored {preposition} any of {counted(count, noun)}"
    return f"No score: {', '.join([reason, *gaps(finding)])}."


def _under_words(finding: Finding) -> tuple[str, str]:
    """Return the words for "under protocols", or "in rows" if a protocol has one for each model or
    group.
    """
    has_groups = any(numbers.grouped for numbers in finding.numbers)
    if len(finding.numbers) > 1 or has_groups:
        return "in", "row"
    return "under", "protocol"


def _under(finding: Finding, count: int) -> str:
    preposition, noun = _under_words(finding)
    return f"{preposition} {counted(count, noun)}"


def _all_guesses(finding: Finding) -> list[str]:
    """Return the sentences for numbers of which none is better than guessing."""
    low, high = _extremes(finding)
    values = low if low == high else f"between {low} and {high}"
    if finding.count == 1:
        numbers = "the only score is"
    elif len(finding.models) > 1:
        numbers = f"all {finding.count:,} scores of {counted(len(finding.models), 'model')} are"
    else:
        numbers = f"all {finding.count:,} scores are"
    first, *others = guessing_sentences(finding.guessing)
    text = f"{first.removesuffix('.')}: {numbers} {values} on {_items(finding.numbers)}."
    return [text, *others]


def _spreads(finding: Finding) -> str:
    """Return the spread of one model on one dataset, of the leader if there is one, or else of all
    numbers.
    """
    if len(finding.models) == 1 and len(finding.datasets) == 1:
        return _spread(finding.numbers[0])
    if len(finding.datasets) == 1 and finding.leads:
        leader = finding.leads[0].models[0]
        return _spread(numbers_of(finding, leader))
    low, high = _extremes(finding)
    models = short(finding.models[0], NAME)
    if len(finding.models) > 1:
        models = counted(len(finding.models), "model")
    items = _items(finding.numbers)
    if len(finding.datasets) > 1:
        items = f"{len(finding.datasets)} datasets"
    return f"{counted(finding.count, 'score')} of {models} on {items} are between {low} and {high}."


def numbers_of(finding: Finding, model: str) -> Numbers:
    """Return the numbers of a model on the first dataset that it was asked about."""
    for numbers in finding.numbers:
        if numbers.model == model:
            return numbers
    raise ValueError(f"{model} has no numbers")


def _spread(numbers: Numbers) -> str:
    """Return the spread of one model on one dataset."""
    lowest = numbers.lowest
    highest = numbers.highest
    assert lowest is not None
    assert highest is not None
    model = short(numbers.model, NAME)
    items = _items([numbers])
    low = percent(lowest.value)
    high = percent(highest.value)
    if numbers.count == 1:
        interval = ""
        if not math.isnan(lowest.interval.low):
            interval = (
                f" (95 % interval {percent(lowest.interval.low)} to "
                f"{percent(lowest.interval.high)} %)"
            )
        name = short(lowest.identity.protocol, NAME)
        if numbers.grouped:
            name += f", {short(lowest.identity.subject, NAME)}"
        return f"{model} scores {low} %{interval} on {items} under {name}."
    if low == high:
        every = protocols(numbers.count, numbers.grouped)
        return f"{model} scores {low} % on {items} under all {every}."
    ways = "the protocol"
    if numbers.grouped or numbers.items[0] != numbers.items[1]:
        ways = "the protocol and the questions"
    return (
        f"{model} scores between {low} % and {high} % on {items}, depending on {ways} "
        f"({numbers.count:,} scores, median {percent(numbers.median)} %)."
    )


def _guesses(finding: Finding) -> list[str]:
    """Return how many of the numbers are no better than guessing.

    An empty list if guessing can make none.
    """
    guessing = finding.guessing
    if not guessing.scores:
        return []
    if guessing.few:
        return [_too_few(guessing)]
    if guessing.beating and not guessing.better:
        return [_by_luck(guessing)]
    noun = "accuracy"
    plural = "accuracies"
    if guessing.scores == finding.count:
        noun = "score"
        plural = "scores"
    if not guessing.guesses:
        every = "the" if guessing.scores == 1 else "every"
        return [f"{every} {noun} is better than guessing"]
    numbers = counted(guessing.scores, noun, plural)
    if len(finding.models) > 1:
        numbers = f"the {numbers} of the {len(finding.models)} models"
    verb = are(guessing.guesses)
    return [f"{guessing.guesses:,} of {numbers} {verb} no better than {_guessing(guessing)}"]


def gaps(finding: Finding) -> list[str]:
    """Return what is missing, a clause for each gap."""
    clauses = []
    row = finding.missing
    is_only_row = finding.lacking == 1
    if row is not None and (row.counts.n or is_only_row or not finding.count):
        clauses.append(_missing_items(finding, row))
    # A row without any number is named by the clause above if it is the only one that lacks items.
    is_named = row is not None and not row.counts.n and is_only_row
    unmeasured = sum(numbers.unmeasured for numbers in finding.numbers)
    if unmeasured and finding.count and not is_named:
        clauses.append(f"no score {_under(finding, unmeasured)}")
    for part in finding.incomplete:
        clauses.append(f"a run is {part}")
    return clauses


def _missing_items(finding: Finding, row: Number) -> str:
    count = f"{row.counts.missing:,} of {counted(row.counts.n + row.counts.missing, 'item')}"
    protocol = short(row.identity.protocol, NAME)
    if finding.lacking > 1:
        rows = _under(finding, finding.lacking)
        return f"items are missing {rows}, most under {protocol} ({count})"
    clause = f"{count} {are(row.counts.missing)} missing under {protocol}"
    if row.missing_reasons:
        clause += f": {short(row.missing_reasons[0].reason, REASON)}"
    return clause


def _items(numbers: Sequence[Numbers]) -> str:
    """Return how many items there are, and of which dataset if it is the only one."""
    least = min(part.items[0] for part in numbers)
    most = max(part.items[1] for part in numbers)
    items = counted(most, "item")
    if least < most:
        items = f"{least:,} to {most:,} items"
    if any(part.grouped for part in numbers):
        items += " a group"
    datasets = {part.dataset for part in numbers}
    if len(datasets) > 1:
        return items
    return f"{items} of {short(numbers[0].dataset, NAME)}"


def _extremes(finding: Finding) -> tuple[str, str]:
    lows = [numbers.lowest.value for numbers in finding.numbers if numbers.lowest]
    highs = [numbers.highest.value for numbers in finding.numbers if numbers.highest]
    return f"{percent(min(lows))} %", f"{percent(max(highs))} %"


def lead_sentences(finding: Finding, subject: str = "") -> list[str]:
    """Return who leads, and what that turns on: one sentence, or none if there is one model.

    ``subject``: what the sentence calls the first model of the only dataset, its name by default.
    """
    if len(finding.models) == 1:
        return []
    if not finding.leads and finding.other_items:
        return ["The models were scored on different questions, so they can't be ranked."]
    if not finding.leads:
        return ["No two models were measured the same way, so they can't be ranked."]
    if len(finding.datasets) == 1:
        (lead,) = finding.leads
        text = _lead(lead, subject or short(lead.models[0], NAME))
        if lead.turn and lead.leader:
            text += f": {turn_text(lead.turn)}"
        # A name keeps its first letter as it is.
        return [sentence([text])] if subject else [f"{text}."]
    clauses = []
    for lead in finding.leads[:SEVERAL]:
        text = _lead(lead, short(lead.models[0], NAME))
        clauses.append(f"on {short(lead.dataset, NAME)} {text}")
    others = len(finding.leads) - SEVERAL
    if others > 0:
        clauses.append(f"{counted(others, 'dataset')} more in the tables")
    return [sentence(clauses)]


def _lead(lead: Lead, best: str) -> str:
    """Return who leads on one dataset; ``best``: what the sentence calls the first model."""
    if lead.items < FEWEST:
        questions = counted(lead.items, "question")
        return f"{questions} {are(lead.items)} too few to say which model is better"
    if not lead.alone:
        return _no_lead(lead)
    every = protocols(lead.contests, lead.grouped)
    if lead.leader is None:
        models = [lead.models[0], *lead.level]
        names = f"{len(models)} models"
        if len(models) <= SEVERAL:
            names = " and ".join(short(model, NAME) for model in models)
        return f"no model leads: {names} are each ahead of all others under {lead.alone} of {every}"
    rivals = f"the {len(lead.models) - 1} other models"
    if len(lead.models) == 2:
        rivals = short(lead.models[1], NAME)
    significance = _significance(lead)
    if lead.alone == lead.contests:
        text = f"{best} is ahead of {rivals} under {_all_protocols(lead)}{significance}"
        if len(lead.models) > 2:
            order = "is the same" if lead.same_order else "changes"
            text += f"; the ranking of the others {order}"
        return text
    ties = ""
    if lead.open:
        ties = f" (open under {lead.open}: cut answers)"
    elif lead.tied:
        ties = f" (tied under {lead.tied})"
    text = f"{best} leads {rivals} under {lead.alone} of {every}{ties}{significance}"
    if 0 < len(lead.behind) <= NAMED:
        names = " and ".join(short(name, NAME) for name in lead.behind)
        text += f", but not under {names}"
    return text


def _no_lead(lead: Lead) -> str:
    """Return why no model is ahead of all others under any protocol."""
    every = protocols(lead.contests, lead.grouped)
    protocol = _all_protocols(lead) if lead.contests == 1 else every
    if lead.open:
        return f"cut answers leave open which model is ahead under {protocol}"
    if len(lead.models) == 2 and lead.tied == lead.contests:
        return f"both models score exactly the same under {_all_protocols(lead)}"
    if lead.contests > 1:
        protocol = f"any of {every}"
    return f"no model is ahead of all others under {protocol}"


def _significance(lead: Lead) -> str:
    """Return how many of the leads are significant; an empty text if they were not tested."""
    if lead.significant is None:
        return ""
    if lead.alone == 1:
        return ", significantly" if lead.significant else ", not significantly"
    if lead.significant == lead.alone:
        return ", each significantly"
    return f", significantly under {lead.significant or 'none'}"


def _part_of(first: int, count: int) -> str:
    if count == 1:
        return "the one" if first else "not the one"
    if first == count:
        return f"all {count}"
    return f"{first or 'none'} of the {count}"


def _all_protocols(lead: Lead) -> str:
    if lead.contests == 1:
        return "the only protocol"
    return f"all {protocols(lead.contests, lead.grouped)}"
