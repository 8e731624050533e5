"""Reading ``surprisal``: every token that holds a byte of the continuation, the two texts encoded as one."""

from choicewise.requests.readings.choices import ChoiceAsker
from choicewise.tokens.char_span import char_spans

ASKER = ChoiceAsker(locate=char_spans)
