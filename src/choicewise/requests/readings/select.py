"""Reading ``select``: the tokens that SGLang's select scores, and what it asks about them besides."""

from collections.abc import Iterator

from choicewise.questions import Span
from choicewise.requests.readings.choices import ChoiceAsker
from choicewise.tokens.choice_question import ChoiceQuestion
from choicewise.tokens.select_span import select_spans
from choicewise.tokens.tokenizer import Tokenizer


def _parts(choice: ChoiceQuestion, tokenizer: Tokenizer) -> Iterator[tuple[int, str, Span]]:
    for part, span in enumerate(choice.parts, start=1):
        if span is not None:
            yield part, tokenizer.decode(span.continuation), span


ASKER = ChoiceAsker(locate=select_spans, parts=_parts)
