"""Where the context ends and the continuation begins, in tokens.

Tokens need not stop where the context stops, so a protocol must say what it scores (axis ``boundary``):

``joint``       the tokens of context + continuation after as many as the context alone has; white space at the end of
                the context counts to the continuation.  As lm-evaluation-harness since June 2023
                (``lm_eval/api/model.py`` ``_encode_pair``); the context keeps its own tokens even across a merge.
``separate``    context and continuation encoded apart and put together (harness v0, January 2023).  The dummy space
                that SentencePiece puts before the continuation stays.
``count``       ``joint`` without moving white space, and the context's tokens are those it has in the whole text.  As
                minicons 0.3.39 (``scorer.py``, ``prime_text``).
``lcp``         the whole texts from the longest token prefix that the context and all choices of a request share: every
                choice is a true tokenisation and is given the same tokens.
``heal``        ``lcp``, divided by the probability that those tokens go on with the rest of the context.
``word``        ``lcp``, for the whole word: that one ends behind the continuation, given that one begins with it.
``bytes``       the bytes of the continuation after those of the context, in whatever tokens they come.
``last-token``  the last token of the continuation encoded alone, as the original scripts look letters up.

The formulae and when to use which: ``docs/design/boundaries.md``.

Axis ``bos``: with ``default`` the context gets what the tokenizer adds by default, with ``none`` nothing.  A text that
itself starts with the BOS gets nothing added, as in the harness, so a BOS is never doubled.  Where nothing precedes the
first scored token, the prefix token does: BOS, or EOS where there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from choicewise.errors import ModelError, ProtocolError
from choicewise.questions.span import Ids, Span
from choicewise.tokens.choice_question import ChoiceQuestion
from choicewise.tokens.correction import CORRECTIONS, Backed, correct
from choicewise.tokens.tokenizer import Tokenizer
from choicewise.tokens.vocabulary import vocabulary


def choice_questions(
    tokenizer: Tokenizer, policy: str, bos: str, context: str, continuations: Sequence[str], gold: Sequence[int]
) -> list[ChoiceQuestion]:
    """How each of ``continuations`` is asked after ``context``; ``gold`` are the indices of right ones."""
    return choice_questions_batch(tokenizer, policy, bos, [context], [continuations], [gold])[0]


def choice_questions_batch(
    tokenizer: Tokenizer,
    policy: str,
    bos: str,
    contexts: Sequence[str],
    continuations: Sequence[Sequence[str]],
    golds: Sequence[Sequence[int]],
) -> list[list[ChoiceQuestion]]:
    """:func:`choice_questions` of many requests, every distinct text encoded once and all in a few calls.

    Raises ModelError when the tokenizer appends tokens to every text, or when an empty context finds no prefix token,
    and ProtocolError when ``policy`` is none of those above.
    """
    if policy not in _CUTS:
        raise ProtocolError(f"boundary is {policy!r}; it must be one of {', '.join(_CUTS)}")
    pairs = [_moved(policy, *pair) for pair in zip(contexts, continuations, strict=True)]
    encode = _Encodings(tokenizer, bos)
    encode.add_contexts(context for context, _ in pairs)
    encode.add_contexts(context + continuation for context, choices in pairs for continuation in choices)
    apart = {continuation for _, choices in pairs for continuation in choices}
    if policy == "last-token":
        encode.add_contexts(apart)
    encode.add_plain(apart if policy == "separate" else _after_nothing(pairs))
    return [
        _request(encode, policy, context, choices, gold) for (context, choices), gold in zip(pairs, golds, strict=True)
    ]


def encode_contexts(tokenizer: Tokenizer, bos: str, contexts: Sequence[str]) -> list[Ids]:
    """Tokens of texts that something follows: at least one each, never a doubled BOS."""
    encode = _Encodings(tokenizer, bos)
    encode.add_contexts(contexts)
    return [encode.context(context) for context in contexts]


class _Encodings:
    """The texts of a batch and their tokens: with what ``bos`` puts in front, and plain."""

    def __init__(self, tokenizer: Tokenizer, bos: str) -> None:
        self.tokenizer = tokenizer
        self._special = bos == "default"
        self._started: dict[str, Ids] = {}
        self._plain: dict[str, Ids] = {}
        self._lost: dict[str, bool] = {}
        if self._special:
            _refuse_suffix(tokenizer)

    def add_contexts(self, texts: Iterable[str]) -> None:
        new = [text for text in dict.fromkeys(texts) if text not in self._started]
        self._started.update(zip(new, self.tokenizer.encode(new, special=self._special), strict=True))
        if doubled := [text for text in new if self._special and _starts_twice(self._started[text], self.tokenizer)]:
            self._started.update(zip(doubled, self.tokenizer.encode(doubled, special=False), strict=True))

    def add_plain(self, texts: Iterable[str]) -> None:
        new = list(dict.fromkeys(texts))
        self._plain.update(zip(new, self.tokenizer.encode(new, special=False), strict=True))

    def whole(self, context: str, continuation: str) -> Ids:
        """Tokens of the two texts as one, behind the prefix token where the context alone has no tokens."""
        if context and len(self._started[context]):
            return self._started[context + continuation]
        tokens = self._started[context + continuation] if context else self._plain[continuation]
        prefix = _prefix_token(self.tokenizer)
        return tokens if tokens[:1].tolist() == prefix.tolist() else np.concatenate([prefix, tokens])

    def context(self, text: str) -> Ids:
        """Tokens of ``text``, or the prefix token where there are none."""
        if text and len(self._started[text]):
            return self._started[text]
        return _prefix_token(self.tokenizer)

    def loses(self, text: str) -> bool:
        """Whether the tokens of a context spell anything but its text, a dummy space in front apart."""
        if text not in self._lost:
            tokens = self.context(text)
            tokens = tokens[_count(tokens[:1], self.tokenizer.bos_id) :]
            self._lost[text] = not _spells(self.tokenizer, tokens, "", text, whole=True)
        return self._lost[text]

    def started(self, text: str) -> Ids:
        return self._started[text]

    def plain(self, text: str) -> Ids:
        return self._plain[text]


def _request(
    encode: _Encodings, policy: str, context: str, choices: Sequence[str], gold: Sequence[int]
) -> list[ChoiceQuestion]:
    start = encode.context(context)
    wholes = [encode.whole(context, choice) for choice in choices]
    pairs = _CUTS[policy](encode, start, wholes, choices)
    asked = [
        _asked(encode, pair, start=start, whole=whole, texts=(context, choice), gold=index in gold)
        for index, (pair, whole, choice) in enumerate(zip(pairs, wholes, choices, strict=True))
    ]
    if policy not in CORRECTIONS:
        return asked
    shared = common_prefix([start, *wholes])
    tails = [whole[shared:] for whole in wholes]
    return correct(policy, Backed(vocabulary(encode.tokenizer), context, choices, start[shared:], tails), asked)


def _asked(
    encode: _Encodings, pair: tuple[Ids, Ids], *, start: Ids, whole: Ids, texts: tuple[str, str], gold: bool
) -> ChoiceQuestion:
    context, continuation = pair
    merged = common_prefix([start, whole]) < len(start)
    if not len(continuation):
        reason = "its characters merge into the context's tokens" if merged else "it has no tokens"
        return ChoiceQuestion(None, merged, 0, missing=f"continuation {texts[1]!r} leaves nothing to score: {reason}")
    tokens, tokenizer = np.concatenate(pair), encode.tokenizer
    return ChoiceQuestion(
        Span(context, continuation, gold),
        merged,
        _count(continuation, tokenizer.unknown_id),
        noncanonical=not np.array_equal(tokens[len(tokens) - len(whole) :], whole),
        lossy=encode.loses(texts[0]) or not _spells(tokenizer, continuation, *texts),
        bos=_count(tokens, tokenizer.bos_id),
    )


def _count(tokens: Ids, token: int | None) -> int:
    return 0 if token is None else int((tokens == token).sum())


def _spells(tokenizer: Tokenizer, tokens: Ids, context: str, continuation: str, *, whole: bool = False) -> bool:
    """Whether ``tokens`` spell the end of the text or, with ``whole``, all of it.

    The dummy space of what is encoded as a text of its own does not count.  What special tokens are written as is not
    known, so texts that hold some pass where nothing is unknown.
    """
    parts = [tokenizer.token_bytes[token] for token in tokens.tolist()]
    if b"" in parts:
        return _count(tokens, tokenizer.unknown_id) == 0
    spelled, text = b"".join(parts), (context + continuation).encode()
    if spelled in (b" " + text, b" " + continuation.encode()):
        return True
    return spelled == text if whole else text.endswith(spelled)


BoundaryRule = Callable[[_Encodings, Ids, list[Ids], Sequence[str]], list[tuple[Ids, Ids]]]


def _joint(encode: _Encodings, start: Ids, wholes: list[Ids], choices: Sequence[str]) -> list[tuple[Ids, Ids]]:
    return [(start, whole[len(start) :]) for whole in wholes]


def _separate(encode: _Encodings, start: Ids, wholes: list[Ids], choices: Sequence[str]) -> list[tuple[Ids, Ids]]:
    return [(start, encode.plain(choice)) for choice in choices]


def _counted(encode: _Encodings, start: Ids, wholes: list[Ids], choices: Sequence[str]) -> list[tuple[Ids, Ids]]:
    return [(whole[: len(start)], whole[len(start) :]) for whole in wholes]


def _lcp(encode: _Encodings, start: Ids, wholes: list[Ids], choices: Sequence[str]) -> list[tuple[Ids, Ids]]:
    shared = common_prefix([start, *wholes])
    if not shared:  # not even the first token is common, so all of every text is scored after the prefix token
        return [(_prefix_token(encode.tokenizer), whole) for whole in wholes]
    context = start[:shared]
    return [(context, whole[shared:]) for whole in wholes]


def _last_token(encode: _Encodings, start: Ids, wholes: list[Ids], choices: Sequence[str]) -> list[tuple[Ids, Ids]]:
    return [(start, encode.started(choice)[-1:]) for choice in choices]


_CUTS: dict[str, BoundaryRule] = {
    "joint": _joint,
    "separate": _separate,
    "count": _counted,
    "lcp": _lcp,
    "last-token": _last_token,
    **dict.fromkeys(CORRECTIONS, _lcp),
}


def common_prefix(sequences: Sequence[Ids]) -> int:
    """How many tokens at the start all ``sequences`` share."""
    length = min(map(len, sequences))
    for sequence in sequences[1:]:
        differ = sequences[0][:length] != sequence[:length]
        length = int(differ.argmax()) if differ.any() else length
    return length


def _moved(policy: str, context: str, continuations: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The two texts after what the policy moves between them."""
    bare = context.rstrip()
    if policy != "joint" or bare == context:
        return context, continuations
    space = context[len(bare) :]
    return bare, [space + continuation for continuation in continuations]


def _after_nothing(pairs: Iterable[tuple[str, Sequence[str]]]) -> Iterable[str]:
    return (continuation for context, choices in pairs if not context for continuation in choices)


def _prefix_token(tokenizer: Tokenizer) -> Ids:
    token = tokenizer.eos_id if tokenizer.bos_id is None else tokenizer.bos_id
    if token is None:
        raise ModelError(
            "the context is empty and the tokenizer names neither a BOS nor an EOS to score after; "
            'name one in tokenizer_config.json ("bos_token") or ask with a context'
        )
    return np.asarray([token], dtype=np.int32)


def _starts_twice(tokens: Ids, tokenizer: Tokenizer) -> bool:
    return tokens[:2].tolist() == [tokenizer.bos_id] * 2


def _refuse_suffix(tokenizer: Tokenizer) -> None:
    """ModelError when the default adds a token behind the text: the continuation would not follow the context."""
    (plain,), (special,) = (tokenizer.encode(["a"], special=special) for special in (False, True))
    if special[len(special) - len(plain) :].tolist() != plain.tolist():
        raise ModelError(
            f"this tokenizer appends token {int(special[-1])} to every text, so no continuation can follow a context; "
            "use a protocol with bos:none, or a tokenizer made for a causal model"
        )
