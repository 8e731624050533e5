"""Encoder-decoders and masked models, which answer in padded batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from choicewise.errors import ModelError
from choicewise.models.local import plain
from choicewise.models.local.devices import to_device
from choicewise.models.local.files import ENCODER_DECODER, MASKED
from choicewise.models.local.loading import NetworkModel
from choicewise.models.local.plain import Sums, float32_copy, largest_difference, noise_of, running_sums
from choicewise.models.model import SelfCheck, Trial
from choicewise.questions import Answers, Blanks, Ids, Question, Rendition, TokenScores

_BATCH_TOKENS = 4096
"""Input tokens computed at once, by default."""

_LOGIT_BYTES = {"cpu": 200_000_000, "cuda": 2_000_000_000}
"""Bytes of logits in float32 that a batch may have, by device."""

_RUNGS = ("auto", "padded", "plain")
"""``padded``: several texts at once; ``plain``: one at a time; ``auto``: padded, where that is right."""

_EXACT = 1e-3
"""Nats a token by which padding may change a score in float32."""

_NARROW = 0.5
"""The same in a 16-bit dtype."""


@dataclass(eq=False, repr=False)
class PaddedModel(NetworkModel, ABC):
    """A transformers model that answers one kind of question, all others being refused with a ModelError.

    ``rung`` is one of :data:`_RUNGS`.  The same question has the same answer within the noise of the self-check,
    whatever else is asked.
    """

    def __post_init__(self) -> None:
        if self.rung not in _RUNGS:
            raise ModelError(f"rung is {self.rung!r}; for {type(self).__name__} it must be one of {', '.join(_RUNGS)}")
        super().__post_init__()

    @property
    def selfcheck(self) -> SelfCheck | None:
        """How exact the padded path is on this model, as measured last, or now; None where the rung is plain."""
        if self._checked is None and self.rung != "plain":
            self._checked = check(self)
            if self.rung == "padded" and self._checked.rung != "padded":
                raise ModelError(f"{self.name}: {self._checked.trials[0].refused}; choose the rung auto")
            if self.paths is not None:
                self.paths.store(self._checked)
        return self._checked

    def check(self, depth: int) -> SelfCheck | None:
        """The self-check, measured when something is first asked; None for a ``depth`` of 0 before that.

        That of another process is taken where ``paths`` has it.
        """
        if depth and self._checked is None and self.rung != "plain":
            self._checked = None if self.paths is None else self.paths.load()
            return self._checked or self.selfcheck
        return self._checked

    def answer(self, questions: Sequence[Question]) -> Answers:
        """The answers, the longest texts first."""
        asked = [self.accepted(question) for question in questions]
        checked = self.check(len(asked))
        self._work.planned = self._work.computed + sum(question.inputs for question in asked)
        padded = checked is not None and checked.rung == "padded"
        try:
            yield from self.scores(asked, padded)
        finally:
            self._work.settle()

    @torch.inference_mode()
    def scores(self, questions: Sequence[Any], padded: bool) -> Answers:
        """The answers, from rows of several questions at once where ``padded``, else from one row at a time."""
        passes = [each for index, question in enumerate(questions) for each in self.passes(index, question)]
        needed, known = Counter(each.index for each in passes), defaultdict[int, dict[int, TokenScores]](dict)
        for batch in self._batches(passes, padded):
            for each, scores in zip(batch, self.compute(questions, batch), strict=True):
                known[each.index][each.part] = scores
                self._work.computed += each.tokens
                if len(known[each.index]) == needed[each.index]:
                    parts = known.pop(each.index)
                    yield each.index, TokenScores.joined([parts[part] for part in sorted(parts)])

    def _batches(self, passes: list[_Pass], padded: bool) -> Iterator[list[_Pass]]:
        """Passes of about one length together."""
        most = self.batch_tokens or _BATCH_TOKENS
        widest = _LOGIT_BYTES.get(self.model.device.type, _LOGIT_BYTES["cpu"]) // (4 * self.vocabulary)
        batch: list[_Pass] = []
        for each in sorted(passes, key=lambda one: (-one.tokens, one.index, one.part)):
            longest = max((one.tokens for one in batch), default=each.tokens)
            width = max(one.width for one in [*batch, each])
            rows = len(batch) + 1
            if batch and (not padded or rows * longest > most or rows * width > widest):
                yield batch
                batch = []
            batch.append(each)
        if batch:
            yield batch

    def ids(self, rows: Sequence[Ids], fill: int = 0) -> tuple[Tensor, Tensor]:
        """Rows padded on the right with ``fill``, and the mask that says which are tokens; int64 [rows, tokens]."""
        tokens = np.full((len(rows), max(map(len, rows))), fill, dtype=np.int64)
        mask = np.zeros_like(tokens)
        for row, ids in enumerate(rows):
            tokens[row, : len(ids)], mask[row, : len(ids)] = ids, 1
        return to_device(tokens, self.model.device), to_device(mask, self.model.device)

    @abstractmethod
    def accepted(self, question: Question) -> Any:
        """``question``, of the kind that the model answers; ModelError for any other."""

    @abstractmethod
    def passes(self, index: int, question: Any) -> list[_Pass]:
        """The passes that ``question``, number ``index``, takes."""

    @abstractmethod
    def compute(self, questions: Sequence[Any], batch: Sequence[_Pass]) -> Iterator[TokenScores]:
        """The scores of each pass, in order."""

    @abstractmethod
    def plain_scores(self, question: Any) -> TokenScores:
        """The answer without anything that :meth:`compute` does to save time: the reference."""

    @abstractmethod
    def probe(self) -> list[Any]:
        """Questions about random tokens that show whether padding changes their answers."""


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

    def passes(self, index: int, question: Rendition) -> list[_Pass]:
        """One."""
        return [_Pass(index, 0, question.inputs, len(question.continuation))]

    def compute(self, questions: Sequence[Rendition], batch: Sequence[_Pass]) -> Iterator[TokenScores]:
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

    def passes(self, index: int, question: Blanks) -> list[_Pass]:
        """One for every scored token."""
        return [_Pass(index, part, len(question.text), 1) for part in range(len(question.places))]

    def compute(self, questions: Sequence[Blanks], batch: Sequence[_Pass]) -> Iterator[TokenScores]:
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


@torch.inference_mode()
def check(model: PaddedModel) -> SelfCheck:
    """The padded path compared with one text at a time on random texts: taken where it is right, else ``plain``.

    The noise of a 16-bit model is its distance from a float32 copy, where one fits in memory.  Raises ModelError for a
    model that answers with NaN or infinity.
    """
    questions = model.probe()
    truth = [running_sums(model.plain_scores(question).logprobs) for question in questions]
    if not np.isfinite(np.concatenate(truth)).all():
        raise ModelError(
            f"{model.name} answers random tokens with NaN or infinity: its weights are damaged or too large for "
            f"{model.dtype}; try float32, or download them again"
        )
    padded: Sums = [np.full(len(sums), np.nan) for sums in truth]
    for index, scores in model.scores(questions, padded=True):
        padded[index] = running_sums(scores.logprobs)
    difference, allowed = largest_difference(padded, truth), _EXACT if model.model.dtype.itemsize >= 4 else _NARROW
    exact: Sums | None = None  # of a float32 copy of a 16-bit model
    if (copied := float32_copy(model.model)) is not None:
        before, model.model = model.model, copied
        try:
            exact = [running_sums(model.plain_scores(question).logprobs) for question in questions]
        finally:
            model.model = before
    floor = difference if exact is None else largest_difference(exact, truth)
    noise = max(noise_of(padded, truth), 0.0 if exact is None else noise_of(exact, truth))
    wrong = f"differs by {difference:.2g} nats where {allowed:.2g} are allowed" if difference > allowed else None
    depth = max(each.tokens for question in questions for each in model.passes(0, question))
    limits = floor, allowed, noise, depth
    trial = Trial("padded", difference, wrong)
    if wrong is None:
        return SelfCheck("padded", difference, *limits, (trial,), "padded batches")
    return SelfCheck("plain", 0.0, *limits, (trial, Trial("plain", 0.0, None)), "one text at a time")


@dataclass(frozen=True, slots=True)
class _Pass:
    """A row of a batch: ``part`` of what question ``index`` needs.

    ``tokens``: the row's input tokens; ``width``: the tokens for which it gives logits.
    """

    index: int
    part: int
    tokens: int
    width: int


def _row(question: Blanks, part: int) -> Any:
    row = question.text.copy()
    row[question.places[part] : question.ends[part]] = question.mask
    return row
