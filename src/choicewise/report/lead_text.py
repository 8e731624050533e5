"""Who leads among several models, in one sentence."""

from choicewise.report.visible_text import short
from choicewise.report.words import NAME, SEVERAL, count, protocols, sentence
from choicewise.results.finding import Finding
from choicewise.results.lead import NAMED, Lead, Turn


def lead_sentences(finding: Finding) -> list[str]:
    """Who leads, and what that turns on: one sentence, or none where there is one model."""
    if len(finding.models) == 1:
        return []
    if not finding.leads:
        return ["No two models were measured the same way, so they have no order."]
    if len(finding.datasets) == 1:
        (lead,) = finding.leads
        turn = [turn_text(lead.turn)] if lead.turn and lead.leader else []
        return [sentence([": ".join([_lead(lead, "it"), *turn])])]
    parts = [
        f"on {short(each.dataset, NAME)} {_lead(each, short(each.models[0], NAME))}" for each in finding.leads[:SEVERAL]
    ]
    more = len(finding.leads) - SEVERAL
    return [sentence([*parts, *([f"{count(more, 'dataset')} more in the tables"] if more > 0 else [])])]


def _lead(lead: Lead, best: str) -> str:
    """``best``: what the sentence calls the model that leads."""
    every, all_ = protocols(lead.contests, lead.grouped), _all(lead)
    rivals = short(lead.models[1], NAME) if len(lead.models) == 2 else f"the {len(lead.models) - 1} other models"
    alone = lead.first - lead.tied
    if not alone and len(lead.models) == 2 and lead.tied == lead.contests:
        return f"both models score exactly the same under {all_}"
    if not alone:
        return f"no model is ahead of all others under {all_ if lead.contests == 1 else f'any of {every}'}"
    ties = f" (tied under {lead.tied})" if lead.tied else ""
    if lead.leader is None:
        names = [short(each, NAME) for each in (lead.models[0], *lead.level)]
        shown = " and ".join(names) if len(names) <= SEVERAL else f"{len(names)} models"
        return f"no model leads: {shown} are each ahead of all others under {alone} of {every}"
    if lead.first == lead.contests:
        others = "" if len(lead.models) == 2 else "; the order of the others "
        others += ("holds, too" if lead.same_order else "changes") if others else ""
        return f"{best} {'leads' if lead.tied else 'is ahead of'} {rivals} under {all_}{ties}{others}"
    behind = f", but not under {' and '.join(short(name, NAME) for name in lead.behind)}"
    return f"{best} leads {rivals} under {lead.first} of {every}{ties}{behind if len(lead.behind) <= NAMED else ''}"


def turn_text(turn: Turn) -> str:
    """Of how many protocols the model leads with what tells best where it does, and of how many others."""
    values = ", ".join(short(value, NAME // 2) for value in turn.values[:SEVERAL])
    more = f" and {len(turn.values) - SEVERAL} more" if len(turn.values) > SEVERAL else ""
    axis = "" if turn.axis == "family" else f"{turn.axis} "
    others = f"{_of(turn.otherwise, turn.others)} other{'' if turn.others == 1 else 's'}"
    return f"{_of(turn.first, turn.count)} with {axis}{values}{more}, {others}"


def _of(first: int, count: int) -> str:
    """So many of ``count``."""
    if count == 1:
        return "the one" if first else "not the one"
    return f"all {count}" if first == count else f"{first or 'none'} of the {count}"


def _all(lead: Lead) -> str:
    return "the one protocol" if lead.contests == 1 else f"all {protocols(lead.contests, lead.grouped)}"
