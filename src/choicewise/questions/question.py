"""Every kind of question that a model may be asked."""

from choicewise.questions.cosine import Cosine
from choicewise.questions.generation import Generation
from choicewise.questions.masked_loss import MaskedLoss
from choicewise.questions.mass import Mass
from choicewise.questions.span import Span

Question = Span | Mass | Generation | MaskedLoss | Cosine
"""Every kind has a ``key`` (32 hex digits, the same for the same question) and ``inputs`` (a number of tokens)."""
