"""The lm-eval model class.

The harness calls this class, and this module alone imports the harness.  What it does follows release 0.4.13
(``lm_eval/models/huggingface.py`` and ``lm_eval/api/model.py``, 4e7e0d4), whose ``hf`` model is held against it in
``tests/peers``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import configure_pad_token
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from choicewise import __version__
from choicewise.errors import ModelError, UsageError
from choicewise.extensions.interop.lm_eval.engine import HARNESS, load_engine, read_arguments, stamp
from choicewise.extensions.interop.lm_eval.requests import (
    Asked,
    Encoder,
    Generator,
    Request,
    Score,
    ask_as_harness,
    ask_rendition,
    ask_span,
    ask_with_boundary,
    score,
)
from choicewise.running.progress import print_line
from choicewise.tokens.encode import Encodings

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance


class ChoicewiseLM(TemplateLM):
    """Answers the requests of all tasks of a run from one tree of tokens.

    The arguments are those of the harness's ``hf`` model that have a meaning here
    (:class:`~choicewise.extensions.interop.lm_eval.engine.ModelArguments`).  Raises UsageError for others, and
    ModelError for a model that can't be used.
    """

    _named_template: str | None = None

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise UsageError(
                "the model choicewise runs in one process; leave out accelerate launch or torchrun"
            )
        self.arguments, notes = read_arguments(arguments)
        for note in notes:
            print_line(f"choicewise: {note}")
        self._engine = engine = load_engine(self.arguments)
        self.backend = "seq2seq" if engine.is_encoder_decoder else "causal"
        self.tokenizer = configure_pad_token(engine.tokenizer, model_config=engine.network.config)
        self._device = engine.network.device
        if engine.is_encoder_decoder and self.arguments.boundary != HARNESS:
            raise UsageError(
                f"boundary={self.arguments.boundary} has no meaning for an encoder-decoder; leave it out"
            )
        prefix = self.prefix_token_id
        self._encoder = Encoder(
            engine.model.tokenizer,
            prefix,
            None if prefix is None else self.tokenizer.decode(prefix),
            self.arguments.add_bos_token,
            apart=engine.is_encoder_decoder,
        )

    @property
    def model(self) -> Any:
        """The torch module."""
        return self._engine.network

    @property
    def config(self) -> Any:
        """Its configuration."""
        return self.model.config

    @property
    def max_length(self) -> int:
        """The most input tokens."""
        return self._engine.window

    @property
    def max_gen_toks(self) -> int:
        """Tokens to generate where a task does not say."""
        return 256

    @property
    def eot_token_id(self) -> int | None:
        """The token that ends a text."""
        token: int | None = self.tokenizer.eos_token_id
        return token

    @property
    def prefix_token_id(self) -> int | None:
        """The token after which a text without context is scored: as asked for, else BOS, else EOS."""
        if self.arguments.prefix_token_id is not None:
            return self.arguments.prefix_token_id
        return (
            self.eot_token_id
            if self.tokenizer.bos_token_id is None
            else int(self.tokenizer.bos_token_id)
        )

    @property
    def tokenizer_name(self) -> str:
        """What the harness knows the tokenizer by."""
        return (self.arguments.tokenizer or self.arguments.pretrained).replace("/", "__")

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[int]:
        """The tokens of ``string``."""
        tokens: list[int] = self._encoder.texts([string], add_special_tokens)[0].tolist()
        return tokens

    def tok_decode(self, tokens: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of ``tokens``."""
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=skip_special_tokens)
        return text

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """(log-likelihood in nats, whether greedy decoding gives it) of each continuation after its context."""
        if self.arguments.enable_thinking:
            raise UsageError(
                "enable_thinking has no meaning for log-likelihoods; leave it out, or ask generative tasks"
            )
        texts = map(_texts, requests)
        asked = [
            Request(*own, _where(each), _group(each))
            for own, each in zip(texts, requests, strict=True)
        ]
        if self.arguments.boundary == HARNESS:
            questions = ask_as_harness(
                self._encoder, asked, self.max_length, self._engine.is_encoder_decoder
            )
        else:
            bos = "none" if self.arguments.add_bos_token is False else "default"
            encodings = Encodings(self._engine.model.tokenizer, bos)
            questions = ask_with_boundary(
                encodings, self.arguments.boundary, asked, self.max_length
            )

        def keep(index: int, answer: Score) -> None:
            self.cache_hook.add_partial(
                "loglikelihood", requests[index].args, (answer.total, answer.greedy)
            )

        scores = score(
            self._engine.model, questions, lambda index: asked[index].where, "loglikelihood", keep
        )
        return [(each.total, each.greedy) for each in scores]

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        """The log-likelihood (nats) of each text as a whole, in windows where it is longer than one."""
        texts = [text for (text,) in (each.args for each in requests)]
        if self.prefix_token_id is None:
            raise ModelError(
                "the tokenizer names neither a BOS nor an EOS to score texts after; pass prefix_token_id"
            )
        questions: list[Asked] = []
        owners: list[int] = []
        for owner, tokens in enumerate(self._encoder.texts(texts)):
            windows = get_rolling_token_windows(
                tokens.tolist(), self.prefix_token_id, self.max_length, context_len=1
            )
            for context, scored in map(make_disjoint_window, windows):
                questions.append(self._ask(context, scored))
                owners.append(owner)
        totals, remaining = np.zeros(len(texts)), np.bincount(owners, minlength=len(texts))

        def keep(index: int, answer: Score) -> None:
            owner = owners[index]
            totals[owner] += answer.total
            remaining[owner] -= 1
            if not remaining[owner]:
                self.cache_hook.add_partial(
                    "loglikelihood_rolling", (texts[owner],), float(totals[owner])
                )

        title = "loglikelihood_rolling"
        score(
            self._engine.model,
            questions,
            lambda index: _where(requests[owners[index]]),
            title,
            keep,
        )
        return [float(total) for total in totals]

    def _loglikelihood_tokens(
        self, requests: list[tuple[Any, list[int], list[int]]], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        questions = [self._ask(context, own) for _, context, own in requests]
        scores = score(
            self._engine.model, questions, lambda index: f"request {index}", "loglikelihood"
        )
        return [(each.total, each.greedy) for each in scores]

    def _ask(self, context: list[int], continuation: list[int]) -> Asked:
        ask = ask_rendition if self._engine.is_encoder_decoder else ask_span
        return ask(
            np.asarray(context, np.int32), np.asarray(continuation, np.int32), self.max_length
        )

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """What the model writes after each context, up to a stop."""
        generator = Generator(
            self._engine,
            self._encoder,
            self.arguments.add_bos_token,
            self.arguments.think_end_token,
        )

        def keep(index: int, text: str) -> None:
            self.cache_hook.add_partial("generate_until", requests[index].args, text)

        return generator.answer(
            [_texts(each) for each in requests], [_where(each) for each in requests], keep
        )

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The text of the template that is chosen; one chosen by its name is then also the one that is applied."""
        text: str | None = super().chat_template(chat_template)
        self._named_template = text if isinstance(chat_template, str) else None
        return text

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """The text of a chat, by the tokenizer's template; one that refuses a system text gets the rest without it."""
        from jinja2.exceptions import TemplateError

        def render(messages: list[dict[str, str]]) -> str:
            text: str = self.tokenizer.apply_chat_template(
                messages,
                chat_template=self._named_template,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
                **self.arguments.template_arguments,
            )
            return text

        try:
            return render(chat_history)
        except TemplateError:
            return render([message for message in chat_history if message["role"] != "system"])

    def get_model_info(self) -> dict[str, Any]:
        """What the results file says of the model."""
        return {
            "model_num_parameters": self.model.num_parameters(),
            "model_dtype": self.model.dtype,
            "model_revision": self.arguments.revision,
            "model_sha": self._engine.commit,
            "choicewise_version": __version__,
            "choicewise_model": self._engine.model.digest,
            "choicewise_boundary": self.arguments.boundary,
        }

    def set_cache_hook(self, cache_hook: Any) -> None:
        """Keep answers in the harness's cache; UsageError where it holds those of another model."""
        if (answers := getattr(cache_hook, "dbdict", None)) is not None:
            stamp(answers, self._identity)
        super().set_cache_hook(cache_hook)

    @property
    def _identity(self) -> str:
        """All that an answer depends on beside the texts of a request."""
        model, arguments = self._engine.model, self.arguments
        parts = [
            model.digest,
            model.tokenizer.digest,
            model.dtype,
            self.max_length,
            self.prefix_token_id,
        ]
        own = [arguments.boundary, arguments.add_bos_token, arguments.think_end_token]
        return json.dumps([*parts, *own])


def _texts(request: Instance) -> tuple[str, Any]:
    """The two arguments of a request; UsageError where it has others, such as images."""
    if len(request.args) != 2:
        raise UsageError(
            f"{_where(request)} has inputs beside text, which the model choicewise does not take"
        )
    context, wanted = request.args
    return context, wanted


def _where(request: Instance) -> str:
    return f"{getattr(request, 'task_name', None) or 'a request'}, document {getattr(request, 'doc_id', None)}"


def _group(request: Instance) -> tuple[str, int]:
    """The question that a request is about: its choices are encoded together where the boundary says so."""
    return getattr(request, "task_name", None) or "", getattr(request, "doc_id", None) or 0
