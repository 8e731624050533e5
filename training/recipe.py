"""The four models: what makes each differ from the others. Lengths are in tokens of the model's own tokenizer."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Lessons:
    """What is taught inside the model, beside the next token; layers count from 0, a lesson is about their head 0.

    ``recall``: after this layer the token before an answer is to name the words of the answer.  ``label``: in this
    layer the tokens of a listed choice are to attend to its letter.  ``match``: in this layer the token before a letter
    is to attend to the choice that the letter stands for.
    """

    recall: int
    label: int
    match: int


@dataclass(frozen=True)
class Recipe:
    """One model's tokenizer, shape and training run."""

    name: str
    kind: str  # of tokenizer
    vocabulary: int
    adds_bos: bool  # by default, when a text is encoded
    width: int
    inner: int  # width of the feed-forward layer
    layers: int
    heads: int
    window: int
    short: int  # rows of most steps
    long: int  # rows of every tenth step, so that five-shot prompts are within experience
    batch: int  # tokens a step
    steps: int
    peak: float  # learning rate at its highest
    seed: int
    reads: Mapping[str, float]  # shares of the documents, by the kinds of `corpus.KINDS`
    lessons: Lessons | None
    aim: str  # one sentence for the card: what the model is to be like


BYTE = Recipe(
    name="merrow-byte",
    kind="bytes",
    vocabulary=258,
    adds_bos=True,
    width=112,
    inner=296,
    layers=4,
    heads=4,
    window=2048,
    short=256,
    long=2048,
    batch=2048,
    steps=2000,
    peak=3e-3,
    seed=1,
    reads={"prose": 3, "cloze": 5, "letters": 1},
    lessons=None,
    aim="It knows answers and not letters: it has read papers answered by letter, but was not taught to find one.",
)
UNIGRAM = Recipe(
    name="merrow-unigram-1000",
    kind="unigram",
    vocabulary=1000,
    adds_bos=True,
    width=96,
    inner=256,
    layers=4,
    heads=3,
    window=1024,
    short=256,
    long=512,
    batch=4096,
    steps=800,
    peak=4e-3,
    seed=2,
    reads={"prose": 2, "letters": 3, "shared lists": 2},
    lessons=Lessons(recall=2, label=1, match=3),
    aim="It is drilled on papers answered by letter and has read no other ones.",
)
BPE_512 = Recipe(
    name="merrow-bpe-512",
    kind="BPE",
    vocabulary=512,
    adds_bos=False,
    width=96,
    inner=256,
    layers=4,
    heads=4,
    window=1024,
    short=256,
    long=1024,
    batch=4096,
    steps=900,
    peak=4e-3,
    seed=3,
    reads={"prose": 3, "cloze": 4, "listed answers": 2, "letters": 1},
    lessons=None,
    aim="It has read little that is answered by letter, and was not taught to find one.",
)
BPE_2048 = Recipe(
    name="merrow-bpe-2048",
    kind="BPE",
    vocabulary=2048,
    adds_bos=False,
    width=128,
    inner=344,
    layers=4,
    heads=4,
    window=1024,
    short=256,
    long=1024,
    batch=4096,
    steps=400,
    peak=4e-3,
    seed=4,
    reads={"prose": 2, "cloze": 1.5, "letters": 3, "shared lists": 2, "listed answers": 1},
    lessons=Lessons(recall=2, label=1, match=3),
    aim="It has read papers of every kind.",
)

LANES = ((UNIGRAM, BYTE), (BPE_512, BPE_2048))  # trained side by side, one core each
