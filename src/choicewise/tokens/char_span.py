"""The tokens of a continuation by its place in the text, whatever the context's own tokens (reading ``surprisal``).

Places are in bytes, counted from the end of the text, as a tokenizer may put a dummy space before its start.
Offset mappings are never used: some published tokenizers return empty ones (huggingface/tokenizers #1553).
"""

import numpy as np

from choicewise.questions import Ids, Span
from choicewise.tokens.choice_question import ChoiceQuestion
from choicewise.tokens.encodings import Encodings
from choicewise.tokens.tokenizer import Tokenizer, count


def char_spans(encodings: Encodings, context: str, continuation: str, gold: bool | None) -> ChoiceQuestion:
    """The tokens that hold a byte of ``continuation`` in the two texts encoded as one, after all tokens before them.

    All of a token that straddles the boundary is scored, because a probability can't be split, and flagged ``merged``.
    Missing where the tokens don't spell the continuation, as with a tokenizer that lower-cases.
    """
    tokenizer = encodings.tokenizer
    tokens, nothing = encodings.contexts([context + continuation, ""])
    ends, spelled = _spelled(tokenizer, tokens)
    text = continuation.encode()
    if not text or not spelled.endswith(text):
        return ChoiceQuestion(None, missing=_misspelt(continuation))
    start = len(spelled) - len(text)
    first = int(np.searchsorted(ends, start, side="right"))
    merged = bool(ends[first - 1] < start) if first else start > 0
    before = tokens[:first] if first else nothing
    return ChoiceQuestion(Span(before, tokens[first:], gold), merged, count(tokens[first:], tokenizer.unknown_id))


def package_spans(encodings: Encodings, context: str, continuation: str, gold: bool | None) -> ChoiceQuestion:
    """The tokens that the package surprisal picks: ``surprise(context + continuation)[start:stop, "char"]``.

    It puts a BOS before whatever the tokenizer adds itself, so that there are two with a tokenizer that adds one.  The
    span begins with the last token that starts at or before the continuation's first character, and ends with the
    first one that ends at or after its last; of a character of several tokens some are left out by that.  Source:
    aalok-sathe/surprisal model.py@6ea34a7, utils.py@02b1d93; the characters of a token are those that its bytes belong
    to, where the package asks the tokenizer's offsets.
    """
    tokenizer = encodings.tokenizer
    if tokenizer.bos_id is None:
        return ChoiceQuestion(None, missing="the package surprisal needs a BOS, and the tokenizer names none")
    text = context + continuation
    (tokens,) = encodings.contexts([text])
    ends, spelled = _spelled(tokenizer, tokens)
    if not continuation or not spelled.endswith(text.encode()):
        return ChoiceQuestion(None, missing=_misspelt(text))
    ends -= len(spelled) - len(text.encode())  # without the dummy space
    char_of = np.repeat(np.arange(len(text)), [len(char.encode()) for char in text])
    first, last = 0, len(tokens)
    for place, (token, end) in enumerate(zip(tokens.tolist(), ends.tolist(), strict=True)):
        size = len(tokenizer.token_bytes[token])
        if not size:  # special tokens have no characters
            continue
        if (0 if end <= size else char_of[end - size]) <= len(context):
            first = place
        if end > 0 and char_of[end - 1] + 1 >= len(text):
            last = place + 1
            break
    before = np.concatenate([[tokenizer.bos_id], tokens[:first]]).astype(np.int32)
    scored = tokens[first:last]
    start = int(ends[last - 1]) - sum(len(tokenizer.token_bytes[token]) for token in scored)
    merged = start < len(context.encode())
    return ChoiceQuestion(Span(before, scored, gold), merged, count(scored, tokenizer.unknown_id))


def ends_before(span: Span, eos_id: int) -> list[Span]:
    """What gives P(EOS) in place of every scored token: rows of the same forward pass, so they cost no token."""
    tokens, eos = np.concatenate([span.context, span.continuation]), np.asarray([eos_id], dtype=np.int32)
    return [Span(tokens[: len(span.context) + place], eos) for place in range(len(span.continuation))]


def _spelled(tokenizer: Tokenizer, tokens: Ids) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], bytes]:
    """Where each token's bytes end, and all the bytes."""
    pieces = [tokenizer.token_bytes[token] for token in tokens]
    return np.cumsum([len(piece) for piece in pieces], dtype=np.int64), b"".join(pieces)


def _misspelt(text: str) -> str:
    return f"the tokens do not spell {text!r}, so it has no character span" if text else "it has no text"
