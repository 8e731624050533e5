"""A causal language model in memory, in the form of Hugging Face transformers, that answers every kind of question."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from choicewise.errors import ModelError
from choicewise.models.local import plain
from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.compute_path import ComputePath
from choicewise.models.local.hidden_states import HiddenStates
from choicewise.models.local.ladder import LADDER, compute_path
from choicewise.models.local.probe import probe_depth
from choicewise.models.local.selfcheck import choose_path
from choicewise.models.local.several_devices import device_name
from choicewise.models.local.token_answers import answer_part, answer_tokens
from choicewise.models.local.unpacked_path import PlainPath
from choicewise.models.local.workload import Workload
from choicewise.models.selfcheck import SelfCheck
from choicewise.questions import (
    CAUSAL_KINDS,
    Answers,
    Blanks,
    Cosine,
    Generation,
    MaskedLoss,
    Mass,
    Question,
    Rendition,
    Span,
    TokenScores,
)
from choicewise.tokens.tokenizer import Tokenizer

RUNGS = ("auto", *LADDER)

Asked = TypeVar("Asked")


@dataclass(eq=False, repr=False)
class LocalModel:
    """A transformers causal model that answers on the fastest compute path that its self-check accepts.

    ``model`` is the torch module, ``vocabulary`` its ``config.vocab_size``, ``ends`` the ids that end a generation.
    ``rung`` is ``auto``, the name of a rung of :mod:`choicewise.models.local.ladder` that alone is tried, or ``plain``
    for one sequence at a time (:mod:`choicewise.models.local.plain`).  ``batch_tokens``: the most tokens computed at
    once, halved whenever memory runs out.
    """

    model: Any
    tokenizer: Tokenizer
    name: str
    digest: str
    window: int
    rung: str = "auto"
    batch_tokens: int | None = None
    supports = CAUSAL_KINDS
    recipe = None

    def __post_init__(self) -> None:
        if self.rung not in RUNGS:
            raise ModelError(f"rung is {self.rung!r}; it must be one of {', '.join(RUNGS)}")
        self.dtype = str(self.model.dtype).removeprefix("torch.")
        self.device = device_name(self.model)
        self.vocabulary = int(self.model.config.get_text_config().vocab_size)
        self.ends = _ends(self.model, self.tokenizer)
        self._work = Workload()
        self._checked: tuple[ComputePath, SelfCheck] | None = None

    def refuse_looking_ahead(self) -> None:
        """ModelError where later tokens change what is said of earlier ones."""
        if plain.looks_ahead(self.model, self.vocabulary):
            kind = type(self.model).__name__
            raise ModelError(f"{self.name} holds a model that looks ahead ({kind}); only causal ones give scores")

    @property
    def selfcheck(self) -> SelfCheck | None:
        """The deepest self-check so far, or one as deep as the window needs; None where the rung is plain."""
        return self._choose(None)[1] if self._checked is None and self.rung != "plain" else self._last

    def check(self, depth: int) -> SelfCheck | None:
        """Choose the path for questions of up to ``depth`` input tokens, where that was not done; then its check."""
        if depth and self.rung != "plain":
            self._choose(depth)
        return self._last

    @property
    def _last(self) -> SelfCheck | None:
        return None if self._checked is None else self._checked[1]

    def _choose(self, deepest: int | None) -> tuple[ComputePath, SelfCheck]:
        """The path for questions of up to ``deepest`` input tokens, or for all that the window allows."""
        if self._checked is None or self._checked[1].depth < probe_depth(self.lm, deepest):
            rung = None if self.rung == "auto" else self.rung
            self._checked = choose_path(self.lm, self.batch_tokens, rung, deepest)
            self.__dict__.pop("_hidden_path", None)
        return self._checked

    @property
    def computed(self) -> int:
        """Input tokens that went through the model so far, those of the self-check included."""
        return self._work.computed

    @property
    def planned(self) -> int:
        """Input tokens known to be needed for all that was asked so far, and those computed."""
        return max(self._work.planned, self._work.computed)

    @cached_property
    def lm(self) -> CausalLM:
        """The model as compute paths use it."""
        return CausalLM(self.model, self.window, self.vocabulary, self._work)

    @cached_property
    def _hidden_states(self) -> HiddenStates:
        return HiddenStates(self.model, self.window, self.vocabulary, self._work)

    @cached_property
    def _hidden_path(self) -> ComputePath | None:
        """The path that computes hidden states; None where the model's own code runs each sequence by itself."""
        if self._last is None or self._last.rung == "plain" or self.lm.undivided:
            return None
        return compute_path(self._last.rung, self._hidden_states, self.batch_tokens)

    def objection(self, question: Question) -> str | None:
        """None: it answers every question of the kinds that it supports."""
        return None

    def answer(self, questions: Sequence[Question]) -> Answers:
        """Everything scored or generated comes first, then losses and cosines."""
        tokens: dict[int, Span | Mass | Generation] = {}
        states: dict[int, MaskedLoss | Cosine] = {}
        for index, question in enumerate(questions):
            self._check(question)
            match question:
                case MaskedLoss() | Cosine():
                    states[index] = question
                case Span() | Mass() | Generation():
                    tokens[index] = question
        self.check(max((question.inputs for question in questions), default=0))
        try:
            yield from answer_part(tokens, self._score)
            yield from answer_part(states, self._compare)
        finally:
            self._work.settle()

    def _score(self, questions: Sequence[Span | Mass | Generation]) -> Answers:
        def answers(path: ComputePath, part: Sequence[Span | Mass | Generation]) -> Answers:
            return answer_tokens(path, part, self.ends, self.tokenizer.token_bytes)

        fast = None if self._checked is None else answers(self._checked[0], questions)
        return nan_fallback(fast, questions, lambda question: next(answers(PlainPath(self.lm), [question]))[1])

    def _compare(self, questions: Sequence[MaskedLoss | Cosine]) -> Answers:
        def plainly(question: MaskedLoss | Cosine) -> TokenScores:
            with self.lm.counting():
                if isinstance(question, MaskedLoss):
                    return question.answer(plain.loss(self.model, question.span))
                return Cosine.answer(plain.cosine(self.model, question))

        path = self._hidden_path
        fast = None if path is None else self._hidden_states.answer(path, questions)
        return nan_fallback(fast, questions, plainly)

    def _check(self, question: Question) -> None:
        """ModelError for what the model would answer wrongly or not at all."""
        match question:
            case Blanks() | Rendition():
                raise ModelError(f"{self.name} is a causal model and can't answer {type(question).__name__}")
            case Cosine(left, right):
                sequences = [(left, len(left)), (right, len(right))]
            case MaskedLoss(Span(context, continuation)) | Span(context, continuation):
                sequences = [(np.concatenate([context, continuation]), question.inputs)]
            case _:
                sequences = [(question.context, question.inputs)]
        for tokens, inputs in sequences:
            if inputs > self.window:
                raise ModelError(
                    f"{inputs + 1} tokens are too many for {self.name}, whose window is {self.window}; "
                    "use a protocol with fewer shots or one that cuts"
                )
            if tokens.max() >= self.vocabulary:
                raise ModelError(
                    f"the tokenizer of {self.name} uses token {tokens.max()}, but the model knows only "
                    f"{self.vocabulary}; the tokenizer belongs to another model"
                )


def nan_fallback(fast: Answers | None, questions: Sequence[Asked], plainly: Callable[[Asked], TokenScores]) -> Answers:
    """The answers to ``questions``: first the ``fast`` ones, then ``plainly`` where those are NaN or None.

    In a pack, one token's NaN reaches tokens that do not look at it: weighed with 0 it is still NaN.
    """
    remaining = list(range(len(questions))) if fast is None else []
    for index, answer in fast or ():
        if answer.is_nan:
            remaining.append(index)
        else:
            yield index, answer
    for index in remaining:
        yield index, plainly(questions[index])


def _ends(model: Any, tokenizer: Tokenizer) -> frozenset[int]:
    """Every id that the generation configuration, the configuration or the tokenizer calls the end of a sequence."""
    generation = getattr(model, "generation_config", None)
    named = [getattr(generation, "eos_token_id", None), getattr(model.config, "eos_token_id", None), tokenizer.eos_id]
    ids = [token for entry in named for token in (entry if isinstance(entry, list) else [entry])]
    return frozenset(token for token in ids if token is not None)
