"""What a model can be asked, in tokens, and what it answers."""

from choicewise.questions.conclusion import Conclusion as Conclusion
from choicewise.questions.cosine import Cosine as Cosine
from choicewise.questions.generation import Generation as Generation
from choicewise.questions.generation import Sampling as Sampling
from choicewise.questions.masked_loss import MaskedLoss as MaskedLoss
from choicewise.questions.mass import Mass as Mass
from choicewise.questions.mass import TokenSet as TokenSet
from choicewise.questions.span import Ids as Ids
from choicewise.questions.span import Span as Span
from choicewise.questions.span import question_key as question_key
from choicewise.questions.token_scores import Answers as Answers
from choicewise.questions.token_scores import TokenScores as TokenScores

Question = Span | Mass | Generation | MaskedLoss | Cosine
"""Every kind has a ``key`` (32 hex digits, the same for the same question) and ``inputs`` (a number of tokens)."""

KINDS: frozenset[type] = frozenset({Span, Mass, Generation, Sampling, MaskedLoss, Cosine})
"""What a model ``supports`` that answers everything."""
