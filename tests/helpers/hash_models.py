"""Hash models as a test wants them: some questions get no answer, it is interrupted, or its tokens are larger."""

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from choicewise.models.fake import HashModel
from choicewise.questions import Ids, Prompt, TokenScores
from choicewise.tokens.tokenizer import ByteTokenizer


class Failing(HashModel):
    """``fails`` says of a question's key whether it gets no answer; after ``most`` answers comes an interrupt.
    ``asked``: the keys of all questions that got an answer or none, in order."""

    def __init__(
        self, fails: Callable[[str], bool] = lambda key: False, most: int | None = None
    ) -> None:
        super().__init__()
        self.fails, self.most = fails, most
        self.asked: list[str] = []

    def answer(self, questions: Sequence[Prompt]) -> Iterator[tuple[int, TokenScores]]:
        for (index, scores), question in zip(super().answer(questions), questions, strict=True):
            if len(self.asked) == self.most:
                raise KeyboardInterrupt
            self.asked.append(question.key)
            yield (
                index,
                TokenScores.unanswered("HTTP 500", scores.tokens)
                if self.fails(question.key)
                else scores,
            )


def third(key: str) -> bool:
    """Whether the key is one of about a third of all."""
    return int(key[:4], 16) % 3 == 0


class MergingTokenizer(ByteTokenizer):
    """Bytes, a token for each of ``merges``, and BOS; ``eos`` is one of the bytes."""

    def __init__(self, *merges: bytes, eos: int | None = None) -> None:
        self.merges = merges
        self.token_bytes = [*(bytes([byte]) for byte in range(256)), *merges, b""]
        self.bos_id, self.eos_id = len(self.token_bytes) - 1, eos

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Ids]:
        ids = {spelled: token for token, spelled in enumerate(self.token_bytes)}
        pattern = b"|".join([*map(re.escape, self.merges), b"(?s:.)"])
        parts = (re.findall(pattern, text.encode()) for text in texts)
        return [
            np.asarray([self.bos_id] * special + [ids[part] for part in own], dtype=np.int32)
            for own in parts
        ]


class MergingModel(HashModel):
    """The weights of ``fake:hash`` with the tokens of a :class:`MergingTokenizer`."""

    def __init__(self, *merges: bytes, eos: int | None = None) -> None:
        super().__init__()
        self.tokenizer = MergingTokenizer(*merges, eos=eos)
