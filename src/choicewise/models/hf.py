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

from choicewise.engine.chain import Chain
from choicewise.engine.encoding import PartwiseTokenizer
from choicewise.engine.pair import Pair
from choicewise.engine.span import Ids, Mass, Prompt, Span, TokenScores
from choicewise.engine.tokenizer import Tokenizer
from choicewise.errors import ModelError
from choicewise.models import checkpoint, ladder, plain, sampling, states
from choicewise.models.alone import fast_or_alone
from choicewise.models.causal import CausalLM
from choicewise.models.greedy import answer
from choicewise.models.hf_tokenizer import HfTokenizer
from choicewise.models.selfcheck import SelfCheck, choose_path
from choicewise.models.unpacked import PlainPath

DTYPES = ("float32", "bfloat16", "float16", "auto")
RUNGS = ("auto", *ladder.LADDER)
Asked = TypeVar("Asked", Span, Pair)


class HfModel:
    """A transformers causal model that answers on the fastest path that its self-check finds right.

    ``model`` is the torch module, ``vocabulary`` its ``config.vocab_size``, ``ends`` the ids that end a generation.
    ``rung`` is ``auto``, the name of a rung of :mod:`choicewise.models.ladder` that alone is tried, or ``plain`` for
    one sequence at a time (:mod:`choicewise.models.plain`).  ``batch_tokens``: the most tokens computed at once, halved
    whenever memory runs out.
    """

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
    def _chosen(self) -> tuple[ladder.Path, SelfCheck]:
        return choose_path(self._lm, self._batch_tokens, None if self._rung == "auto" else self._rung)

    def score(self, questions: Sequence[Span | Mass]) -> Iterator[tuple[int, TokenScores]]:
        """(index, what was seen) of every span and mass, as results become available."""
        for question in questions:
            if isinstance(question, Mass):
                self._check(question.context, 1)
            else:
                self._check(np.concatenate([question.context, question.continuation]), 0)
        yield from self._answers(questions)

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[tuple[int, TokenScores]]:
        """(index, greedy tokens with the log-probabilities of the raw logits) of every prompt, as they end.

        A generation ends behind the first end-of-sequence token, which is kept.
        """
        for prompt in prompts:
            self._check(prompt.context, prompt.new_tokens)
        yield from self._answers(prompts)

    def _answers(self, questions: Sequence[Span | Mass | Prompt]) -> Iterator[tuple[int, TokenScores]]:
        fast = None if self._rung == "plain" else answer(self._chosen[0], questions, self.ends)
        return fast_or_alone(fast, len(questions), lambda index: self._alone(questions[index]))

    def _alone(self, question: Span | Mass | Prompt) -> TokenScores:
        ((_, seen),) = answer(PlainPath(self._lm), [question], self.ends)
        return seen

    def sample(self, chains: Sequence[Chain]) -> Iterator[tuple[int, TokenScores]]:
        """(index, sampled tokens with the log-probabilities of the raw logits) of every chain, in order.

        One chain at a time, so that its numbers don't depend on what is asked besides; with the model's own cache on
        every rung but the plain one.
        """
        for chain in chains:
            self._check(chain.context, chain.new_tokens)
        for index, chain in enumerate(chains):
            asked = self.model, self.vocabulary, chain, self.ends, self.tokenizer.token_bytes
            with plain.counted(self._lm):
                seen = plain.sample(*asked) if self._rung == "plain" else sampling.sample(*asked)
            yield index, seen

    def masked(self, spans: Sequence[Span]) -> Iterator[tuple[int, float]]:
        """(index, the model's own loss on the continuation, all other labels masked, in nats per token) of every span.

        On every rung but the plain one the loss is taken where the continuation is, from states computed once.
        """
        for span in spans:
            self._check(np.concatenate([span.context, span.continuation]), 1)
        yield from self._values(spans, states.masked, plain.masked)

    def cosines(self, pairs: Sequence[Pair]) -> Iterator[tuple[int, float]]:
        """(index, the cosine of the last hidden states of both texts at their last tokens) of every pair."""
        for pair in pairs:
            for text in (pair.left, pair.right):
                self._check(text, 1)
        yield from self._values(pairs, states.cosines, plain.cosine)

    def _values(
        self,
        questions: Sequence[Asked],
        on_path: Callable[[states.States, ladder.Rung, int, Sequence[Asked]], Iterator[tuple[int, float]]],
        plainly: Callable[[Any, Asked], float],
    ) -> Iterator[tuple[int, float]]:
        """(index, what is computed from hidden states) of every question."""

        def alone(index: int) -> float:
            with plain.counted(self._lm):
                return plainly(self.model, questions[index])

        rung = self._states_rung()
        fast = None if rung is None else on_path(self._states, rung, self._budget, questions)
        return fast_or_alone(fast, len(questions), alone)

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

    def _check(self, tokens: Ids, more: int) -> None:
        """ModelError for what the model would answer wrongly or not at all."""
        if len(tokens) + more > self.window + 1:
            raise ModelError(
                f"{len(tokens) + more} tokens are too many for {self.name}, whose window is {self.window}; "
                "use a protocol with fewer shots or one that cuts"
            )
        if tokens.max() >= self.vocabulary:
            raise ModelError(
                f"the tokenizer of {self.name} uses token {tokens.max()}, but the model knows only {self.vocabulary}; "
                "the tokenizer belongs to another model"
            )


def load(
    path: str | Path,
    *,
    dtype: str | None = None,
    device: str | None = None,
    window: int | None = None,
    rung: str = "auto",
    batch_tokens: int | None = None,
    trust_remote_code: bool = False,
) -> HfModel:
    """The model in the folder ``path``, in evaluation mode.

    ``dtype``: of weights and arithmetic; ``auto`` takes the checkpoint's own; by default float32 on a CPU and the
    checkpoint's own elsewhere.  ``device``: a CUDA device where there is one, else the CPU.  ``window``: input tokens,
    from the configuration unless given, and never more than it states.  ``rung``, ``batch_tokens``: as in
    :class:`HfModel`.  Only safetensors files are opened, nothing is downloaded, and code that comes with the folder
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
    found = HfModel(
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
