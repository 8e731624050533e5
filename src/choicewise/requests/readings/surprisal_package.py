"""Reading ``surprisal-package``: the tokens that the package surprisal picks, and P(EOS) in the place of each."""

from collections.abc import Iterator

from choicewise.questions import Span
from choicewise.requests.readings.choices import ChoiceAsker
from choicewise.tokens.char_span import ends_before, package_spans
from choicewise.tokens.choice_question import ChoiceQuestion
from choicewise.tokens.tokenizer import Tokenizer


def _ends(choice: ChoiceQuestion, tokenizer: Tokenizer) -> Iterator[tuple[int, str, Span]]:
    """Part 1 + j is EOS in the place of token j."""
    if isinstance(choice.span, Span) and tokenizer.eos_id is not None:
        for part, end in enumerate(ends_before(choice.span, tokenizer.eos_id), start=1):
            yield part, "", end


ASKER = ChoiceAsker(locate=package_spans, parts=_ends)
