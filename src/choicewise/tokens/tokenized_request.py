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
    """The texts of one request and their tokens.

    ``context``: those of the context alone.  The first ``stem`` of them begin all joined texts (the context with each
    choice), too, and those of its last line, ``tail``, do not depend on what comes before.  ``ends``: the tokens after
    the stem, of the context alone, then of every joined text.
    """

    encodings: Encodings
    context_text: str
    choices: tuple[str, ...]
    context: Ids
    stem: int
    tail: str
    ends: Sequence[Ids]

    @cached_property
    def shared(self) -> int:
        """How many tokens after the stem the context and all joined texts have in common."""
        return common_prefix(self.ends)

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokenizer's tokens by their bytes."""
        return vocabulary(self.encodings.tokenizer)

    def after_shared(self) -> list[Ids]:
        """The tokens after those that all texts have in common: of the context alone, then of every joined text."""
        return [tokens[self.shared :] for tokens in self.ends]

    def context_end(self, index: int) -> bytes | None:
        """The bytes of the context after the shared tokens of choice ``index``; None where its tokens lose text."""
        spelled = self.vocabulary.spelled(self.after_shared()[1 + index].tolist())
        choice, context = self.choices[index].encode(), self.context_text.encode()
        if not spelled.endswith(choice):
            return None
        end = spelled[: len(spelled) - len(choice)]
        # a tokenizer that puts a dummy space before every text also does so where all of the text is scored
        return end if context.endswith(end) or end == b" " + context else None


def tokenized_requests(
    encodings: Encodings, contexts: Sequence[str], choices: Sequence[Sequence[str]]
) -> list[TokenizedRequest]:
    """The requests of ``contexts`` and the ``choices`` after each; what is new to ``encodings`` is encoded."""
    encodings.add_sequences(contexts)
    continued = encodings.continued(contexts, choices)
    whole = [index for index, rests in enumerate(continued) if rests is None]
    encodings.add_sequences(contexts[index] + choice for index in whole if contexts[index] for choice in choices[index])
    encodings.add_plain(choice for index in whole if not contexts[index] for choice in choices[index])
    requests = []
    for text, own, rests in zip(contexts, choices, continued, strict=True):
        context = encodings.context(text)
        if rests is None:
            ends = [context, *(encodings.joined(text, choice) for choice in own)]
            requests.append(TokenizedRequest(encodings, text, tuple(own), context, 0, text, ends))
        else:
            tail, ends = rests
            stem = len(context) - len(ends[0])
            requests.append(TokenizedRequest(encodings, text, tuple(own), context, stem, tail, ends))
    return requests
