"""What a model can be asked, in tokens, and what it answers."""

from choicewise.questions.blanks import Blanks as Blanks
from choicewise.questions.conclusion import Conclusion as Conclusion
from choicewise.questions.cosine import Cosine as Cosine
from choicewise.questions.generation import Generation as Generation
from choicewise.questions.generation import Sampling as Sampling
from choicewise.questions.masked_loss import MaskedLoss as MaskedLoss
from choicewise.questions.mass import Mass as Mass
from choicewise.questions.mass import TokenSet as TokenSet
from choicewise.questions.rendition import Rendition as Rendition
from choicewise.questions.span import Ids as Ids
from choicewise.questions.span import Span as Span
from choicewise.questions.span import question_key as question_key
from choicewise.questions.token_scores import NOT_FIRST as NOT_FIRST
from choicewise.questions.token_scores import UNKNOWN as UNKNOWN
from choicewise.questions.token_scores import Answers as Answers
from choicewise.questions.token_scores import TokenScores as TokenScores

Question = Span | Mass | Generation | MaskedLoss | Cosine | Blanks | Rendition
"""Every kind has a ``key`` (32 hex digits, the same for the same question) and ``inputs`` (a number of tokens)."""

CAUSAL_KINDS: frozenset[type] = frozenset({Span, Mass, Generation, Sampling, MaskedLoss, Cosine})
"""What a causal language model ``supports``."""

KINDS: frozenset[type] = CAUSAL_KINDS | {Blanks, Rendition}
"""What a model ``supports`` that answers everything."""
