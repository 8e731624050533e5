"""An encoder-decoder in memory: T5, BART and their kin."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers.modeling_outputs import BaseModelOutput

from choicewise.errors import ModelError
from choicewise.models.local import plain
from choicewise.models.local.model_kind import ENCODER_DECODER
from choicewise.models.local.padded_model import PaddedModel, Pass
from choicewise.questions import Ids, Question, Rendition, TokenScores


@dataclass(eq=False, repr=False)
class EncoderDecoder(PaddedModel):
    """A transformers encoder-decoder that answers :class:`~choicewise.questions.Rendition`.

    Questions of a batch about the same source share its encoder pass.  Raises ModelError where the configuration names
    no token that starts the decoder's text.
    """

    supports = ENCODER_DECODER.supports

    def __post_init__(self) -> None:
        super().__post_init__()
        named = [
            getattr(config, "decoder_start_token_id", None)
            for config in (self.model.config, getattr(self.model, "generation_config", None))
        ]
        starts = [token for token in named if token is not None]
        if not starts:
            raise ModelError(
                f"config.json of {self.name} names no decoder_start_token_id, with which its decoder would start; "
                "fetch the folder again, or name the token there"
            )
        self._start = np.asarray(starts[:1], dtype=np.int32)

    def accepted(self, question: Question) -> Rendition:
        """A rendition whose two texts fit."""
        if not isinstance(question, Rendition):
            raise ModelError(f"{self.name} is an encoder-decoder and can't answer {type(question).__name__}")
        for tokens in (question.source, question.continuation):
            self.refuse_tokens(tokens)
        return question

    def passes(self, index: int, question: Rendition) -> list[Pass]:
        """One."""
        return [Pass(index, 0, question.inputs, len(question.continuation))]

    def compute(self, questions: Sequence[Rendition], batch: Sequence[Pass]) -> Iterator[TokenScores]:
        """From one encoder pass for every distinct source, and one decoder pass."""
        asked = [questions[each.index] for each in batch]
        sources = {question.source.tobytes(): question.source for question in asked}
        number = {key: row for row, key in enumerate(sources)}
        tokens, mask = self.ids(list(sources.values()))
        states = self.model.get_encoder()(input_ids=tokens, attention_mask=mask)[0]
        rows = torch.tensor([number[question.source.tobytes()] for question in asked], device=mask.device)
        written, _ = self.ids([self._before(question.continuation) for question in asked])
        logits = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=states[rows.to(states.device)]),
            attention_mask=mask[rows],
            decoder_input_ids=written,
            use_cache=False,
        ).logits
        for row, question in enumerate(asked):
            own = logits[row, : len(question.continuation), : self.vocabulary].float()
            yield plain.scores(own, question.continuation)

    @torch.inference_mode()
    def plain_scores(self, question: Rendition) -> TokenScores:
        """The answer from one forward pass without padding or mask."""
        source, written = (
            torch.from_numpy(tokens.astype(np.int64))[None].to(self.model.device)
            for tokens in (question.source, self._before(question.continuation))
        )
        logits = self.model(input_ids=source, decoder_input_ids=written, use_cache=False).logits
        return plain.scores(logits[0, :, : self.vocabulary].float(), question.continuation)

    def _before(self, continuation: Ids) -> Ids:
        """What the decoder has read when it writes each token of ``continuation``."""
        return np.concatenate([self._start, continuation[:-1]])

    def probe(self) -> list[Rendition]:
        """Random sources of many lengths, each with a short continuation and a longer one."""
        random = np.random.default_rng(0)
        texts = []
        for tokens in np.unique(np.geomspace(1, min(self.window, 128), 8).astype(int)):
            source = random.integers(0, self.vocabulary, tokens, dtype=np.int32)
            written = (random.integers(0, self.vocabulary, length, dtype=np.int32) for length in (1, int(tokens)))
            texts += [Rendition(source, continuation) for continuation in written]
        return texts
