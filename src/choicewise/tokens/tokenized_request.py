"""A request in tokens: its context alone, and its context with every choice."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from choicewise.questions import Ids
from choicewise.tokens.encodings import Encodings
from choicewise.tokens.tokenizer import common_prefix
from choicewise.tokens.vocabulary import Vocabulary, vocabulary


@dataclass(frozen=True, eq=False)
class TokenizedRequest:
    """The texts of one request, which ``encodings`` has encoded."""

    encodings: Encodings
    context_text: str
    choices: Sequence[str]

    @cached_property
    def context(self) -> Ids:
        """The tokens of the context alone."""
        return self.encodings.context(self.context_text)

    @cached_property
    def joined(self) -> list[Ids]:
        """The tokens of the context and each choice as one text."""
        return [self.encodings.joined(self.context_text, choice) for choice in self.choices]

    @cached_property
    def shared(self) -> int:
        """How many tokens the context and all joined texts have in common at their start."""
        return common_prefix([self.context, *self.joined])

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokenizer's tokens by their bytes."""
        return vocabulary(self.encodings.tokenizer)

    def context_end(self, index: int) -> bytes | None:
        """The bytes of the context after the shared tokens of choice ``index``; None where its tokens lose text."""
        spelled = self.vocabulary.spelled(self.joined[index][self.shared :].tolist())
        choice, context = self.choices[index].encode(), self.context_text.encode()
        if not spelled.endswith(choice):
            return None
        end = spelled[: len(spelled) - len(choice)]
        # a tokenizer that puts a dummy space before every text also does so where all of the text is scored
        return end if context.endswith(end) or end == b" " + context else None
