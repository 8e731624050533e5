"""A masked language model in memory: BERT, RoBERTa and their kin."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from choicewise.errors import ModelError
from choicewise.models.local import plain
from choicewise.models.local.model_kind import MASKED
from choicewise.models.local.padded_model import PaddedModel, Pass
from choicewise.questions import Blanks, Question, TokenScores


@dataclass(eq=False, repr=False)
class MaskedLM(PaddedModel):
    """A transformers masked model that answers :class:`~choicewise.questions.Blanks`: a pass for every blank."""

    supports = MASKED.supports

    def accepted(self, question: Question) -> Blanks:
        """Blanks in a text that fits."""
        if not isinstance(question, Blanks):
            raise ModelError(f"{self.name} is a masked model and can't answer {type(question).__name__}")
        self.refuse_tokens(question.text)
        self.refuse_tokens(np.asarray([question.mask]))
        return question

    def passes(self, index: int, question: Blanks) -> list[Pass]:
        """One for every scored token."""
        return [Pass(index, part, len(question.text), 1) for part in range(len(question.places))]

    def compute(self, questions: Sequence[Blanks], batch: Sequence[Pass]) -> Iterator[TokenScores]:
        """From logits at the blanks alone, as a vocabulary at every token takes more than the rest of the model."""
        asked = [questions[each.index] for each in batch]
        tokens, mask = self.ids([_row(question, each.part) for question, each in zip(asked, batch, strict=True)])
        places = [int(question.places[each.part]) for question, each in zip(asked, batch, strict=True)]
        logits = self._logits_at(places, tokens, mask)[:, : self.vocabulary].float()
        for row, (question, each) in enumerate(zip(asked, batch, strict=True)):
            yield plain.scores(logits[row : row + 1], question.continuation[each.part : each.part + 1])

    def _logits_at(self, places: Sequence[int], tokens: Tensor, mask: Tensor) -> Tensor:
        """Logits at one place of each row, shape [rows, vocabulary]: the model's own head sees these states only."""

        def select(module: Any, inputs: Any, output: Any) -> Any:
            hidden = output.last_hidden_state
            rows, columns = (torch.tensor(each, device=hidden.device) for each in (range(len(places)), places))
            output.last_hidden_state = hidden[rows, columns][:, None]
            return output

        hook = self.model.base_model.register_forward_hook(select)
        try:
            logits: Tensor = self.model(input_ids=tokens, attention_mask=mask).logits
        finally:
            hook.remove()
        return logits[:, 0]

    @torch.inference_mode()
    def plain_scores(self, question: Blanks) -> TokenScores:
        """The answer from one forward pass for every blank, without padding or mask, logits everywhere."""
        parts = []
        for row, place in zip(question.rows(), question.places, strict=True):
            inputs = torch.from_numpy(row.astype(np.int64))[None].to(self.model.device)
            logits = self.model(input_ids=inputs).logits[0, place : place + 1, : self.vocabulary].float()
            parts.append(plain.scores(logits, question.text[place : place + 1]))
        return TokenScores.joined(parts)

    def probe(self) -> list[Blanks]:
        """Random texts of many lengths, each with blanks at its start, in its middle and at its end."""
        random = np.random.default_rng(0)
        texts = []
        for tokens in np.unique(np.geomspace(1, min(self.window, 128), 12).astype(int)):
            text = random.integers(0, self.vocabulary, tokens, dtype=np.int32)
            places = np.unique([0, tokens // 2, tokens - 1]).astype(np.int32)
            texts.append(Blanks(text, places, places + 1, int(self.tokenizer.mask_id or 0)))
        return texts


def _row(question: Blanks, part: int) -> Any:
    row = question.text.copy()
    row[question.places[part] : question.ends[part]] = question.mask
    return row
