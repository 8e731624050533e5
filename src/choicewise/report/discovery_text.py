"""What an example shows, a line each: who leads, its spread, what the order turns on, and what one change does."""

from collections.abc import Iterator

from choicewise.report.lead_text import turn_text
from choicewise.report.reversal_text import reversal_sentence
from choicewise.report.table import percent
from choicewise.report.visible_text import short, visible_line
from choicewise.report.words import NAME, count, protocols
from choicewise.results.finding import Finding
from choicewise.results.reversal import Reversal
from choicewise.results.striking_pair import StrikingPair


def discovery_lines(finding: Finding, turned: Reversal | None, pair: StrikingPair | None) -> Iterator[str]:
    """Five lines about one dataset; fewer where there is nothing to say.  ``pair``: of the model that leads."""
    for lead in finding.leads[:1]:
        best = short(lead.models[0], NAME)
        every = protocols(lead.contests, lead.grouped)
        yield f"{best} is the first of {len(lead.models)} models under {lead.first} of {every}."
        own = next(each for each in finding.numbers if each.model == lead.models[0])
        if own.lowest is not None and own.highest is not None:
            low, high, questions = own.lowest.value, own.highest.value, count(own.items[1], "question")
            yield (
                f"It scores between {percent(low)} % and {percent(high)} % on the same {questions}: "
                f"{percent(high - low)} points lie in how it is asked."
            )
        if lead.turn is not None:
            yield f"The order of the models changes: it leads under {turn_text(lead.turn)}."
    if turned is not None:
        yield reversal_sentence(turned)
    if pair is not None:
        yield (
            f"One change, axis {pair.axis.axis} from {_quoted(pair.axis.left)} to {_quoted(pair.axis.right)}, takes "
            f"{percent(pair.start_value - pair.end_value)} points: {pair.lost} of {count(pair.n, 'answer')} go wrong "
            f"and {pair.gained} right from {short(pair.start, NAME)} to {short(pair.end, NAME)}."
        )


def _quoted(value: str) -> str:
    return f'"{short(visible_line(value), NAME)}"'
