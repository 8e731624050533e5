"""Answer questions with a causal network, on the path that its self-check chose."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from choicewise.errors import ModelError
from choicewise.models.local import attention, plain
from choicewise.models.local.causal_lm import (
    LIKELIEST,
    CausalLM,
    ComputePath,
    PlainPath,
    Reads,
    Rung,
    Workload,
)
from choicewise.models.local.fused import AFTER, FusedLayers, can_fuse, compiled_score_tokens
from choicewise.models.local.networks import NetworkModel
from choicewise.models.local.parallel import joined
from choicewise.models.local.paths import LADDER, TreePath, compute_path, rungs
from choicewise.models.local.selfcheck import Scored, SpotCheck, check, is_scored, probe_depth
from choicewise.models.local.set_based import SetBasedPath
from choicewise.models.model import SelfCheck, Trial
from choicewise.questions import (
    CAUSAL_KINDS,
    Answers,
    Blanks,
    Cosine,
    Decision,
    Ended,
    Generation,
    Ids,
    MaskedLoss,
    Mass,
    Prompt,
    Rendition,
    SetSpan,
    Span,
    TokenScores,
)
from choicewise.tokens.tokenizer import Tokenizer

_RUNGS = ("auto", *LADDER)
_Question = TypeVar("_Question")
_Part = TypeVar("_Part")
_ANY_TOKEN = np.zeros(1, dtype=np.int32)


@dataclass(eq=False, repr=False)
class LocalModel(NetworkModel):
    """A transformers causal model that answers on the fastest path that its self-check accepts.

    ``ends`` are the ids that end a generation.  ``rung`` is ``auto``, the name of a rung of
    :mod:`choicewise.models.local.paths` that alone is tried, or ``plain`` for one sequence at a
    time (:mod:`choicewise.models.local.plain`).  ``batch_tokens``: the most tokens computed at
    once, halved whenever memory runs out.
    """

    supports = CAUSAL_KINDS

    def __post_init__(self) -> None:
        if self.rung not in _RUNGS:
            raise ModelError(f"rung is {self.rung!r}; it must be one of {', '.join(_RUNGS)}")
        super().__post_init__()
        self.ends = _ends(self.model, self.tokenizer)
        self._path: ComputePath | None = None
        self._fused = False

    @property
    def selfcheck(self) -> SelfCheck | None:
        """Return the deepest self-check so far, or one for the window; None if the rung is plain."""
        if self._checked is None and self.rung != "plain":
            self._take(check(self.lm, self._ladder()))
        return self._last

    def check(self, depth: int) -> SelfCheck | None:
        """Choose the path for questions of up to ``depth`` input tokens, and return its check.

        The choice of another process is taken if ``paths`` has one for the same depth.
        """
        if not depth or self.rung == "plain":
            return self._last
        needed = probe_depth(self.lm, depth)
        if self._checked is None and self.paths is not None:
            self._checked = self.paths.load()
        if self._checked is None or self._checked.depth < needed:
            self._take(check(self.lm, self._ladder(), depth))
        return self._last

    @property
    def _last(self) -> SelfCheck | None:
        """Return the last check, with the noise of compared answers if it is above the probe's."""
        if self._checked is None:
            return None
        noise = self._spot_check.noise
        if noise <= self._checked.noise:
            return self._checked
        return replace(self._checked, noise=noise)

    def _ladder(self) -> dict[str, Rung]:
        if self.rung == "auto":
            return rungs(self.lm.device.type)
        return {self.rung: LADDER[self.rung]}

    def _take(self, checked: SelfCheck) -> None:
        self._checked = checked
        self._path = None
        self.__dict__.pop("_hidden", None)
        if self.paths is not None:
            self.paths.store(checked)

    @cached_property
    def lm(self) -> CausalLM:
        """Return the model as compute paths use it."""
        return CausalLM(self.model, self.window, self.vocabulary, self._work)

    @cached_property
    def _spot_check(self) -> SpotCheck:
        return SpotCheck(self.lm)

    @cached_property
    def _set_based(self) -> SetBasedPath:
        return SetBasedPath(self.lm)

    @cached_property
    def _hidden(self) -> tuple[HiddenStates, ComputePath] | None:
        """Return what computes hidden states, and its path.

        None if the code of the model runs each sequence by itself.
        """
        if self._checked is None or self._checked.rung == "plain" or self.lm.undivided:
            return None
        states = HiddenStates(self.model, self.window, self.vocabulary, self._work)
        return states, compute_path(self._checked.rung, states, self.batch_tokens)

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        """Yield scores and generations, then losses and cosines, then options as sets."""
        tokens: dict[int, Scored] = {}
        states: dict[int, MaskedLoss | Cosine] = {}
        sets: dict[int, SetSpan] = {}
        for index, question in enumerate(questions):
            self._check(question)
            if isinstance(question, MaskedLoss | Cosine):
                states[index] = question
            elif isinstance(question, SetSpan):
                sets[index] = question
            elif isinstance(question, Span | Mass | Generation):
                tokens[index] = question
        self.check(max((question.inputs for question in questions), default=0))
        try:
            yield from _answer_part(tokens, self._score)
            yield from _answer_part(states, self._compare)
            yield from _answer_part(sets, self._set_based.answer)
        finally:
            self._work.settle()

    def _score(self, questions: Sequence[Scored]) -> Answers:
        def answers(path: ComputePath, part: Sequence[Scored]) -> Answers:
            table = self.tokenizer.token_bytes
            for index, answer in answer_tokens(path, part, self.ends, table):
                question = part[index]
                if isinstance(question, Generation):
                    finish = question.finish(answer.tokens.tolist(), table, self.ends)
                    # The same answer may be that of another question.
                    answer = replace(answer, ended=Ended(finish))
                yield index, answer

        def plainly(question: Scored) -> TokenScores:
            _, answer = next(answers(PlainPath(self.lm), [question]))
            return answer

        # A path stays, as it learns how much fits in memory.
        if self._path is None and self._checked is not None:
            self._path = compute_path(self._checked.rung, self.lm, self.batch_tokens)
        fast = None
        if self._path is not None:
            self._fuse(self._path)
            fast = self._spot_checked(questions, partial(answers, self._path))
        return nan_fallback(fast, questions, plainly)

    def _fuse(self, path: ComputePath) -> None:
        """Compile the layers of ``path`` and its read-out once the run is long, if its numbers stay
        right.
        """
        least = AFTER.get(self.lm.device.type, math.inf)
        if self._fused or self.lm.computed < least or not isinstance(path, TreePath):
            return
        self._fused = True
        if self._checked is None or not can_fuse(self.model):
            return
        layers = FusedLayers(self.model, attention.NAME)

        def fused(lm: CausalLM, tokens: int) -> ComputePath:
            copy = compute_path(path.name, lm, tokens)
            # The float32 copy that the check may make has layers of its own.
            if lm is self.lm and isinstance(copy, TreePath):
                copy.layers = layers
            return copy

        self.lm.score_tokens = compiled_score_tokens()
        try:
            (trial,) = check(self.lm, {path.name: fused}, self._checked.depth).trials
        except ModelError:
            self.lm.score_tokens = plain.score_tokens
            return
        path.layers = layers
        compiled = replace(trial, rung=f"{path.name}, layers compiled")
        self._checked = replace(self._checked, trials=(*self._checked.trials, compiled))

    def _spot_checked(
        self, questions: Sequence[Scored], answers: Callable[[Sequence[Scored]], Answers]
    ) -> Answers:
        """Yield the ``answers``, and after the last compare some of them with the plain path.

        Raises ModelError if they are wrong, and takes a slower path from then on.
        """
        texts = []
        if self._checked is None or self._checked.rung != "plain":
            texts = self._spot_check.texts(questions)
        spans: list[Span] = []
        for text in texts:
            spans += text.spans
        compared: dict[int, TokenScores] = {}
        for index, answer in answers([*questions, *spans]):
            if index < len(questions):
                yield index, answer
            else:
                compared[index] = answer
        in_order = [compared[len(questions) + number] for number in range(len(spans))]
        wrong = self._spot_check.compare(texts, in_order)
        if wrong is not None:
            self._refuse_path(*wrong)

    def _refuse_path(self, difference: float, allowed: float) -> None:
        """Choose among the slower paths, and raise ModelError."""
        assert self._checked is not None
        rung = self._checked.rung
        ladder = self._ladder()
        names = list(ladder)
        slower = names[names.index(rung) + 1 :]
        excess = (
            f"on a question of this run the path {rung!r} is {difference:.2g} nats off one "
            "sequence at a "
            f"time ({allowed:.2g} allowed)"
        )
        if not slower:
            raise ModelError(f"{self.name}: {excess}; use rung auto, the fastest correct one")
        self.lm.score_tokens = plain.score_tokens
        checked = check(self.lm, {name: ladder[name] for name in slower}, self._checked.depth)
        self._take(replace(checked, trials=(Trial(rung, difference, excess), *checked.trials)))
        raise ModelError(
            f"{self.name}: {excess}; its last answers are dropped. Run the same command again to "
            "resume on the path "
            f"{checked.rung!r}"
        )

    def _compare(self, questions: Sequence[MaskedLoss | Cosine]) -> Answers:
        def plainly(question: MaskedLoss | Cosine) -> TokenScores:
            with self.lm.counting():
                if isinstance(question, MaskedLoss):
                    return question.answer(plain.loss(self.model, question.span))
                return Cosine.answer(plain.cosine(self.model, question))

        fast = None
        if self._hidden is not None:
            states, path = self._hidden
            fast = states.answer(path, questions)
        return nan_fallback(fast, questions, plainly)

    def _check(self, question: Prompt) -> None:
        """Raise ModelError for a question that the model would answer wrongly or not at all."""
        match question:
            case Blanks() | Rendition() | Decision():
                raise ModelError(
                    f"{self.name} is a causal model and can't answer {type(question).__name__}"
                )
            case Cosine(left, right):
                sequences = [(left, len(left)), (right, len(right))]
            case (
                MaskedLoss(Span(context, continuation))
                | Span(context, continuation)
                | SetSpan(context, continuation)
            ):
                sequences = [(np.concatenate([context, continuation]), question.inputs)]
            case _:
                sequences = [(question.context, question.inputs)]
        for tokens, inputs in sequences:
            self.refuse_tokens(tokens, inputs)


class SharedModel(LocalModel):
    """The part of this process in a model that several compute.

    See :mod:`choicewise.models.local.parallel`.  ``number``: that of the model on all ranks.  What
    rank 0 asks, all ranks ask; the answers are complete before the first of them is given, as no
    rank may be left in the middle.
    """

    number: int
    _under_way = False

    @property
    def selfcheck(self) -> SelfCheck | None:
        """Return the deepest self-check so far, or one for the window."""
        if self._checked is not None:
            return self._last
        return self.ask("selfcheck", None)

    def check(self, depth: int) -> SelfCheck | None:
        """Choose the path for questions of up to ``depth`` input tokens, and return its check."""
        return self.ask("check", depth)

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        """Yield the answers, which are complete before the first of them."""
        return iter(self.ask("answer", list(questions)))

    def ask(self, what: str, argument: Any) -> Any:
        """Call the method ``what`` on all ranks at once; rank 0 calls the others to it."""
        if self._under_way:
            return self._on_this_rank(what, argument)
        self._under_way = True
        try:
            ranks = joined()
            ranks.announce((what, self.number, argument))
            with ranks.together():
                return self._on_this_rank(what, argument)
        finally:
            self._under_way = False

    def _on_this_rank(self, what: str, argument: Any) -> Any:
        if what == "answer":
            return list(super().answer(argument))
        if what == "check":
            return super().check(argument)
        return super().selfcheck


def nan_fallback(
    fast: Answers | None,
    questions: Sequence[_Question],
    plainly: Callable[[_Question], TokenScores],
) -> Answers:
    """Yield the ``fast`` answers, then answer ``plainly`` if those are NaN or ``fast`` is None.

    In a pack, one token's NaN reaches tokens that do not look at it: weighed with 0 it is still
    NaN.
    """
    remaining: list[int] = []
    if fast is None:
        remaining = list(range(len(questions)))
    for index, answer in fast or ():
        if answer.is_nan:
            remaining.append(index)
        else:
            yield index, answer
    for index in remaining:
        yield index, plainly(questions[index])


def answer_tokens(
    path: ComputePath,
    questions: Sequence[Span | Mass | Generation],
    ends: Collection[int],
    token_bytes: Sequence[bytes],
) -> Answers:
    """Yield the scores of every span and mass, and the tokens of every generation.

    All spans, masses and greedy generations of one token come from one tree, other generations from
    another, which end by ``ends`` and ``token_bytes``
    (:class:`choicewise.models.local.causal_lm.Draft`).
    """
    scored: dict[int, Span | Mass] = {}
    generated: dict[int, Generation] = {}
    for index, question in enumerate(questions):
        if not isinstance(question, Generation):
            scored[index] = question
        elif is_scored(question):
            scored[index] = Span(question.context, LIKELIEST)
        elif question.limit:
            generated[index] = question
        else:
            yield index, TokenScores.of()
    yield from _answer_part(scored, path.score)
    yield from _answer_part(generated, lambda part: path.generate(part, ends, token_bytes))


class HiddenStates(CausalLM):
    """A model that stores the hidden states that a path gives it to read.

    In the path's answers, tokens are positions among these states, and log-probabilities and ranks
    mean nothing.  So every unique token is computed once here, too.
    """

    def __init__(
        self, model: Any, window: int, vocabulary: int, work: Workload | None = None
    ) -> None:
        super().__init__(model, window, vocabulary, work)
        self._states_read: list[Tensor] = []

    def read(self, hidden: Tensor, rows: Ids, targets: Ids, *_: Any) -> Reads:
        """Store ``rows`` of ``hidden``, and answer with their positions."""
        distinct, inverse = np.unique(rows, return_inverse=True)
        start = sum(map(len, self._states_read))
        positions = self.tensor(start + inverse, hidden.device).int()
        self._states_read.append(hidden.index_select(0, self.tensor(distinct, hidden.device)))
        logprobs = torch.zeros_like(positions, dtype=torch.float32)
        return positions, logprobs, torch.zeros_like(positions)

    @torch.inference_mode()
    def answer(self, path: ComputePath, questions: Sequence[MaskedLoss | Cosine]) -> Answers:
        """Yield the model's loss on continuations, and the cosine of the last states of two texts.

        ``path`` computes on this model.
        """
        spans: list[Span] = []
        for question in questions:
            if isinstance(question, MaskedLoss):
                spans.append(question.span)
            else:
                spans.append(Span(question.left, _ANY_TOKEN))
                spans.append(Span(question.right, _ANY_TOKEN))
        answers = dict(path.score(spans))
        rows = torch.cat(self._states_read)
        self._states_read = []
        positions = (answers[index].tokens for index in range(len(spans)))
        states = (rows.index_select(0, self.tensor(part, rows.device)) for part in positions)
        for index, question in enumerate(questions):
            if isinstance(question, MaskedLoss):
                yield index, question.answer(self.loss(next(states), question.span.continuation))
            else:
                left = next(states)[-1].double()
                right = next(states)[-1].double()
                cosine = torch.nn.functional.cosine_similarity(left, right, dim=0)
                yield index, Cosine.answer(float(cosine))


def _ends(model: Any, tokenizer: Tokenizer) -> frozenset[int]:
    """Return every id that configurations or the tokenizer call the end of a sequence."""
    generation = getattr(model, "generation_config", None)
    named = [tokenizer.eos_id]
    for config in (generation, model.config):
        ids = getattr(config, "eos_token_id", None)
        named += ids if isinstance(ids, list) else [ids]
    return frozenset(id for id in named if id is not None)


def _answer_part(
    part: Mapping[int, _Part], answer: Callable[[Sequence[_Part]], Answers]
) -> Answers:
    """Answer the questions that ``part`` holds by index; ``answer`` counts them from 0."""
    indexes = list(part)
    if indexes:
        for number, scores in answer(list(part.values())):
            yield indexes[number], scores
