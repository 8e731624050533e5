"""One item of a run in full: what was sent, which tokens were scored, and what every protocol decides."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Token:
    """A scored token: its ``text`` (bytes that are no characters of their own as ``\\xe2``), ``size`` in bytes,
    ``logprob`` in nats and ``rank``, the number of vocabulary entries with a strictly greater logit."""

    id: int
    text: str
    size: int
    logprob: float
    rank: int


@dataclass(frozen=True, slots=True)
class ScoredContinuation:
    """A continuation as it was scored, or why it was not.

    ``choice`` is -1 for generated text; ``null`` the null context in place of the prompt; ``part`` numbers what a
    reading asks about the same choice; ``context`` is its own prompt, where it has one.  ``total`` is the sum of the
    log-probabilities, with the correction ``before`` subtracted and ``after`` added (all in nats).  ``value``: what was
    observed instead of log-probabilities, a loss or a cosine.  ``missing`` says so when a total or value is NaN.
    """

    choice: int
    part: int
    null: str | None
    context: str | None
    continuation: str
    context_tokens: int
    tokens_dropped: int
    bos: int
    merged: bool
    noncanonical: bool
    lossy: bool
    unknown: int
    missing: str | None
    before: float | None
    after: float | None
    total: float | None
    value: float | None
    tokens: tuple[Token, ...]
    generated: str | None


@dataclass(frozen=True, slots=True)
class AskedPrompt:
    """One prompt of the item, the protocols that read it, and what was observed after it.

    ``rescored``: a float32 copy of the model answered, because the noise of the 16-bit model leaves the item open.
    """

    protocols: tuple[str, ...]
    reading: str
    boundary: str
    context: str | None
    shots: int | None
    shots_dropped: int | None
    tokens_dropped: int
    rescored: bool
    missing: str | None
    scored: tuple[ScoredContinuation, ...]


@dataclass(frozen=True, slots=True)
class ItemDecision:
    """What a protocol decides about the item; ``scores`` per choice (None: not scored), ``prediction`` -1 for none.

    ``credit`` NaN: missing.  ``margin``: best minus second best score.  ``near_tie``: numeric noise could change it.
    """

    protocol: str
    score: str
    scores: tuple[float, ...] | None
    prediction: int
    credit: float
    margin: float
    tied: bool
    near_tie: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """An item with everything that was asked about it."""

    item: str
    subject: str
    question: str
    choices: tuple[str, ...]
    gold: tuple[int, ...]
    model: str
    asked: tuple[AskedPrompt, ...]
    decided: tuple[ItemDecision, ...]
