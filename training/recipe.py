"""The four models: what makes each differ from the others. Lengths are in tokens of the model's own tokenizer."""

from dataclasses import dataclass


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
    short: int  # rows of most of the training
    long: int  # rows of some steps, so that five-shot prompts are within experience
    spread: bool  # whether long rows come at every tenth step or only at the end
    batch: int  # tokens a step
    steps: int
    seed: int


BYTE = Recipe("merrow-byte", "bytes", 258, True, 96, 256, 3, 4, 2048, 256, 2048, True, 2048, 1500, 1)
UNIGRAM = Recipe("merrow-unigram-1000", "unigram", 1000, True, 80, 216, 3, 4, 1024, 256, 512, False, 4096, 700, 2)
BPE_512 = Recipe("merrow-bpe-512", "BPE", 512, False, 96, 256, 4, 4, 1024, 256, 1024, False, 4096, 700, 3)
BPE_2048 = Recipe("merrow-bpe-2048", "BPE", 2048, False, 128, 344, 4, 4, 1024, 256, 1024, True, 2048, 700, 4)

LANES = ((UNIGRAM, BYTE), (BPE_512, BPE_2048))  # trained side by side, one core each
