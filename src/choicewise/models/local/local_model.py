"""A causal language model in a local folder, in the format of Hugging Face transformers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import transformers
from transformers.utils import logging

from choicewise.errors import ModelError
from choicewise.models.local import checkpoint, ladder, plain, sampling
from choicewise.models.local import hidden_states as states
from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.hf_tokenizer import HfTokenizer
from choicewise.models.local.nan_fallback import nan_fallback
from choicewise.models.local.selfcheck import choose_path
from choicewise.models.local.token_answers import answer_tokens
from choicewise.models.local.unpacked_path import PlainPath
from choicewise.models.selfcheck import SelfCheck
from choicewise.questions.cosine import Cosine
from choicewise.questions.generation import Generation, Sampling
from choicewise.questions.masked_loss import MaskedLoss
from choicewise.questions.mass import Mass
from choicewise.questions.question import Question
from choicewise.questions.span import Ids, Span
from choicewise.questions.token_scores import TokenScores
from choicewise.tokens.partwise_tokenizer import PartwiseTokenizer
from choicewise.tokens.tokenizer import Tokenizer

DTYPES = ("float32", "bfloat16", "float16", "auto")
RUNGS = ("auto", *ladder.LADDER)
Asked = TypeVar("Asked", Span, Cosine)
_KINDS = ("tokens", "samples", "losses", "cosines")


class LocalModel:
    """A transformers causal model that answers on the fastest path that its self-check finds right.

    ``model`` is the torch module, ``vocabulary`` its ``config.vocab_size``, ``ends`` the ids that end a generation.
    ``rung`` is ``auto``, the name of a rung of :mod:`choicewise.models.local.ladder` that alone is tried, or ``plain`` for
    one sequence at a time (:mod:`choicewise.models.local.plain`).  ``batch_tokens``: the most tokens computed at once, halved
    whenever memory runs out.
    """

    supports: frozenset[type] = frozenset({Span, Mass, Generation, Sampling, MaskedLoss, Cosine})

    def __init__(
        self,
        model: Any,
        tokenizer: Tokenizer,
        *,
        name: str,
        digest: str,
        window: int,
        rung: str = "auto",
        batch_tokens: int | None = None,
    ) -> None:
        if rung not in RUNGS:
            raise ModelError(f"rung is {rung!r}; it must be one of {', '.join(RUNGS)}")
        self.model = model
        self.tokenizer = tokenizer
        self.name = name
        self.digest = digest
        self.window = window
        self.dtype = str(model.dtype).removeprefix("torch.")
        self.device = str(model.device)
        self.vocabulary = int(model.config.get_text_config().vocab_size)
        self.ends = _ends(model, tokenizer)
        self._rung = rung
        self._batch_tokens = batch_tokens

    @property
    def selfcheck(self) -> SelfCheck | None:
        """What the self-check found, run when first asked for; nothing where the plain path was chosen."""
        return None if self._rung == "plain" else self._chosen[1]

    @property
    def computed(self) -> int:
        """Input tokens that went through the model so far, those on which the self-check tried its paths included."""
        return self._lm.computed + (self._states.computed if "_states" in self.__dict__ else 0)

    @cached_property
    def _lm(self) -> CausalLM:
        return CausalLM(self.model, self.window, self.vocabulary)

    @cached_property
    def _chosen(self) -> tuple[ladder.ComputePath, SelfCheck]:
        return choose_path(self._lm, self._batch_tokens, None if self._rung == "auto" else self._rung)

    def answer(self, questions: Sequence[Question]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``questions``, the answer) of every one, as results become available.

        Everything scored or generated greedily comes first, then samples, losses and cosines.
        """
        for question in questions:
            self._check(question)
        kinds: dict[str, list[int]] = {}
        for index, question in enumerate(questions):
            kinds.setdefault(_kind(question), []).append(index)
        for kind, places in sorted(kinds.items(), key=lambda entry: _KINDS.index(entry[0])):
            mine = [questions[place] for place in places]
            for index, answer in getattr(self, f"_{kind}")(mine):
                yield places[index], answer

    def _tokens(self, questions: Sequence[Span | Mass | Generation]) -> Iterator[tuple[int, TokenScores]]:
        def alone(index: int) -> TokenScores:
            ((_, answer),) = answer_tokens(PlainPath(self._lm), [questions[index]], self.ends)
            return answer

        fast = None if self._rung == "plain" else answer_tokens(self._chosen[0], questions, self.ends)
        return nan_fallback(fast, len(questions), alone)

    def _samples(self, generations: Sequence[Generation]) -> Iterator[tuple[int, TokenScores]]:
        """One at a time, so that the numbers of one don't depend on the others."""
        for index, generation in enumerate(generations):
            arguments = self.model, self.vocabulary, generation, self.ends, self.tokenizer.token_bytes
            with plain.counted(self._lm):
                yield index, (plain.sample if self._rung == "plain" else sampling.sample)(*arguments)

    def _losses(self, questions: Sequence[MaskedLoss]) -> Iterator[tuple[int, TokenScores]]:
        spans = [question.span for question in questions]
        for index, loss in self._values(spans, states.masked, plain.masked):
            yield index, questions[index].answer(loss)

    def _cosines(self, questions: Sequence[Cosine]) -> Iterator[tuple[int, TokenScores]]:
        for index, cosine in self._values(questions, states.cosines, plain.cosine):
            yield index, Cosine.answer(cosine)

    def _values(
        self,
        questions: Sequence[Asked],
        on_path: Callable[[states.States, ladder.Rung, int, Sequence[Asked]], Iterator[tuple[int, float]]],
        plainly: Callable[[Any, Asked], float],
    ) -> Iterator[tuple[int, float]]:
        """(index, what is computed from hidden states) of every question; on the plain rung by the model's own code."""

        def alone(index: int) -> float:
            with plain.counted(self._lm):
                return plainly(self.model, questions[index])

        rung = self._states_rung()
        fast = None if rung is None else on_path(self._states, rung, self._budget, questions)
        return nan_fallback(fast, len(questions), alone)

    @cached_property
    def _states(self) -> states.States:
        return states.States(self.model, self.window, self.vocabulary)

    @property
    def _budget(self) -> int:
        return self._batch_tokens or ladder.BATCH_TOKENS.get(self._lm.device.type, ladder.BATCH_TOKENS["cpu"])

    def _states_rung(self) -> ladder.Rung | None:
        """The rung that hidden states come from; nothing where each sequence is run by itself, by the model's own."""
        if self._rung == "plain" or self._chosen[1].rung == "plain" or self._states.whole:
            return None
        return ladder.LADDER[self._chosen[1].rung]

    def _check(self, question: Question) -> None:
        """ModelError for what the model would answer wrongly or not at all."""
        for tokens, inputs in _sequences(question):
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


def _kind(question: Question) -> str:
    """Which method of a LocalModel answers it."""
    if isinstance(question, Generation) and question.sampling is not None:
        return "samples"
    return {MaskedLoss: "losses", Cosine: "cosines"}.get(type(question), "tokens")


def _sequences(question: Question) -> list[tuple[Ids, int]]:
    """The known tokens of every sequence that the model computes for a question, and how many tokens are inputs."""
    match question:
        case Cosine():
            return [(question.left, len(question.left)), (question.right, len(question.right))]
        case MaskedLoss():
            span = question.span
            return [(np.concatenate([span.context, span.continuation]), question.inputs)]
        case Span():
            return [(np.concatenate([question.context, question.continuation]), question.inputs)]
        case _:
            return [(question.context, question.inputs)]


def load(
    path: str | Path,
    *,
    dtype: str | None = None,
    device: str | None = None,
    window: int | None = None,
    rung: str = "auto",
    batch_tokens: int | None = None,
    trust_remote_code: bool = False,
) -> LocalModel:
    """The model in the folder ``path``, in evaluation mode.

    ``dtype``: of weights and arithmetic; ``auto`` takes the checkpoint's own; by default float32 on a CPU and the
    checkpoint's own elsewhere.  ``device``: a CUDA device where there is one, else the CPU.  ``window``: input tokens,
    from the configuration unless given, and never more than it states.  ``rung``, ``batch_tokens``: as in
    :class:`LocalModel`.  Only safetensors files are opened, nothing is downloaded, and code that comes with the folder
    runs only with ``trust_remote_code``, and only where transformers has no implementation of its own.

    Raises ModelError when something is missing, damaged, or no causal language model, and warns of weights in the
    folder that the model does not use.
    """
    folder = Path(path)
    place = _device(device)
    dtype = dtype or ("float32" if place.type == "cpu" else "auto")
    if dtype not in DTYPES:
        raise ModelError(f"dtype is {dtype!r}; it must be one of {', '.join(DTYPES)}")
    for what, tokens in (("window", window), ("batch_tokens", batch_tokens)):
        if tokens is not None and tokens < 1:
            raise ModelError(f"{what} is {tokens} tokens; it must be at least 1, or left out")
    config = checkpoint.read_config(folder)
    _refuse_remote_code(config, folder, trust_remote_code)
    whole = HfTokenizer(folder)
    tokenizer = PartwiseTokenizer(whole, whole.cut)
    identity = checkpoint.digest(folder, tokenizer.digest)
    window = checkpoint.window_of(config, folder, window)
    model = _from_pretrained(folder, dtype, place, trust_remote_code)
    found = LocalModel(
        model,
        tokenizer,
        name=folder.resolve().name,
        digest=identity,
        window=window,
        rung=rung,
        batch_tokens=batch_tokens,
    )
    if plain.looks_ahead(model, found.vocabulary):
        raise ModelError(
            f"{folder} holds a model that looks ahead ({type(model).__name__}); only causal ones give scores"
        )
    return found


def _device(name: str | None) -> torch.device:
    """Where to compute; ModelError for a place that torch does not know or does not have."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ModelError(f"device is {name!r}; it must be cpu, cuda or one of several: cuda:0, cuda:1, ...") from error
    try:
        torch.zeros(1, device=device).item()  # some devices, like meta, take tensors and give nothing back
    except Exception as error:  # every kind of device is missing in a way of its own
        there = ", ".join(["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))])
        raise ModelError(
            f"device is {name!r}, but torch {torch.__version__} finds only {there}; "
            "leave --device out or pass one that is there"
        ) from error
    return device


def _from_pretrained(folder: Path, dtype: str, device: torch.device, trust_remote_code: bool) -> Any:
    with _quiet():
        try:
            model, loading = transformers.AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=dtype,
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=trust_remote_code,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # refused below, where they can be named
            )
            model = model.to(device).eval()
        except Exception as error:  # configurations, weights and devices fail in every way there is
            raise ModelError(f"{folder} can't be loaded as a causal language model: {error}") from error
    loading["mismatched_keys"] = [
        f"{name} has shape {list(found)} instead of {list(stated)}"
        for name, found, stated in loading["mismatched_keys"]
    ]
    for kind in ("missing_keys", "mismatched_keys", "error_msgs"):
        if wrong := sorted(map(str, loading[kind])):
            raise ModelError(
                f"the weights in {folder} do not fit its config.json, and parts of the model would be random "
                f"({kind}: {', '.join(wrong[:3])}; {len(wrong)} in all); fetch the folder again"
            )
    if unused := sorted(loading["unexpected_keys"]):
        warnings.warn(
            f"{folder} holds weights that the model its config.json describes has no place for, and they are not used: "
            f"{', '.join(unused[:3])}; {len(unused)} in all",
            stacklevel=3,
        )
    return model


def _refuse_remote_code(config: dict[str, Any], folder: Path, trusted: bool) -> None:
    if "auto_map" in config and not trusted and config.get("model_type") not in transformers.CONFIG_MAPPING:
        raise ModelError(
            f"{folder} needs code of its own to run (auto_map in config.json); read that code, "
            "then pass trust_remote_code=True to load_model"
        )


def _ends(model: Any, tokenizer: Tokenizer) -> frozenset[int]:
    """Every id that the generation configuration, the configuration or the tokenizer calls the end of a sequence."""
    generation = getattr(model, "generation_config", None)
    named = [getattr(generation, "eos_token_id", None), getattr(model.config, "eos_token_id", None), tokenizer.eos_id]
    ids = [token for entry in named for token in (entry if isinstance(entry, list) else [entry])]
    return frozenset(token for token in ids if token is not None)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the progress bars and advice that transformers prints while loading; what it was before, after."""
    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
