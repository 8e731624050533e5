"""Provide the model class that lm-eval calls.

This module alone imports the harness.  The class follows release 0.4.13
(``lm_eval/models/huggingface.py`` and ``lm_eval/api/model.py``, 4e7e0d4), whose ``hf`` model is
compared with it in ``tests/peers``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import configure_pad_token
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from choicewise import __version__
from choicewise.errors import ModelError, UsageError
from choicewise.extensions.interop.lm_eval.engine import HARNESS, load_engine, read_arguments, stamp
from choicewise.extensions.interop.lm_eval.requests import (
    DEFAULT_LIMIT,
    Encoder,
    Generator,
    Request,
    Score,
    ScoredPrompt,
    boundary_prompts,
    harness_prompts,
    rendition_prompt,
    score,
    span_prompt,
)
from choicewise.running.progress import print_line
from choicewise.tokens.encode import Encodings

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance


class ChoicewiseLM(TemplateLM):
    """Answer the requests of all tasks of a run from one tree of tokens.

    The arguments are those of the harness's ``hf`` model that have a meaning here
    (:class:`~choicewise.extensions.interop.lm_eval.engine.ModelArguments`).  Raises UsageError for
    others, and ModelError for a model that can't be used.
    """

    _named_template: str | None = None

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise UsageError(
                "the model choicewise runs in one process; start it without accelerate or torchrun"
            )
        self.arguments, notes = read_arguments(arguments)
        for note in notes:
            print_line(f"choicewise: {note}")
        engine = load_engine(self.arguments)
        self._engine = engine
        self.tokenizer = configure_pad_token(engine.tokenizer, model_config=engine.network.config)
        self._device = engine.network.device
        self.backend = "causal"
        if engine.is_encoder_decoder:
            self.backend = "seq2seq"
            if self.arguments.boundary != HARNESS:
                raise UsageError(
                    f"boundary={self.arguments.boundary} can't be used with an encoder-decoder; "
                    "leave it out"
                )
        prefix = self.prefix_token_id
        prefix_text = None
        if prefix is not None:
            prefix_text = self.tokenizer.decode(prefix)
        self._encoder = Encoder(
            tokenizer=engine.model.tokenizer,
            prefix=prefix,
            prefix_text=prefix_text,
            add_bos=self.arguments.add_bos_token,
            apart=engine.is_encoder_decoder,
        )

    @property
    def model(self) -> Any:
        """Return the torch module."""
        return self._engine.network

    @property
    def config(self) -> Any:
        """Return the configuration of the torch module."""
        return self.model.config

    @property
    def max_length(self) -> int:
        """Return the most input tokens."""
        return self._engine.window

    @property
    def max_gen_toks(self) -> int:
        """Return the default limit of generated tokens."""
        return DEFAULT_LIMIT

    @property
    def eot_token_id(self) -> int | None:
        """Return the token that ends a text."""
        token: int | None = self.tokenizer.eos_token_id
        return token

    @property
    def prefix_token_id(self) -> int | None:
        """Return the token before a text without context: the argument, BOS, or EOS."""
        if self.arguments.prefix_token_id is not None:
            return self.arguments.prefix_token_id
        if self.tokenizer.bos_token_id is not None:
            return int(self.tokenizer.bos_token_id)
        return self.eot_token_id

    @property
    def tokenizer_name(self) -> str:
        """Return the name of the tokenizer in the harness's files."""
        name = self.arguments.tokenizer or self.arguments.pretrained
        return name.replace("/", "__")

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[int]:
        """Return the tokens of ``string``."""
        (ids,) = self._encoder.texts([string], add_special_tokens)
        tokens: list[int] = ids.tolist()
        return tokens

    def tok_decode(self, tokens: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Return the text of ``tokens``."""
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=skip_special_tokens)
        return text

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """Return each continuation's log-likelihood (nats), and whether it is greedy."""
        if self.arguments.enable_thinking:
            raise UsageError(
                "enable_thinking works only for tasks that generate; "
                "leave it out for tasks of log-likelihoods"
            )
        texts = list(map(_request, requests))
        if self.arguments.boundary == HARNESS:
            prompts = harness_prompts(
                self._encoder, texts, self.max_length, self._engine.is_encoder_decoder
            )
        else:
            bos = "default"
            if self.arguments.add_bos_token is False:
                bos = "none"
            encodings = Encodings(self._engine.model.tokenizer, bos)
            prompts = boundary_prompts(encodings, self.arguments.boundary, texts, self.max_length)

        def where(index: int) -> str:
            return texts[index].where

        # An interrupted run finds the answers so far in the harness's cache.
        def keep(index: int, answer: Score) -> None:
            self.cache_hook.add_partial(
                "loglikelihood", requests[index].args, (answer.total, answer.greedy)
            )

        return self._scores(prompts, where, "loglikelihood", keep)

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        """Return the log-likelihood (nats) of each text, in windows if it is longer than one."""
        texts = []
        for request in requests:
            (text,) = request.args
            texts.append(text)
        if self.prefix_token_id is None:
            raise ModelError(
                "the tokenizer has no BOS and no EOS to put before a text; pass prefix_token_id"
            )
        prompts: list[ScoredPrompt] = []
        owners: list[int] = []
        for owner, tokens in enumerate(self._encoder.texts(texts)):
            windows = get_rolling_token_windows(
                tokens.tolist(), self.prefix_token_id, self.max_length, context_len=1
            )
            for context, scored in map(make_disjoint_window, windows):
                prompts.append(self._prompt(context, scored))
                owners.append(owner)
        totals = np.zeros(len(texts))
        remaining = np.bincount(owners, minlength=len(texts))

        def where(index: int) -> str:
            return _where(requests[owners[index]])

        def keep(index: int, answer: Score) -> None:
            owner = owners[index]
            totals[owner] += answer.total
            remaining[owner] -= 1
            if not remaining[owner]:
                total = float(totals[owner])
                self.cache_hook.add_partial("loglikelihood_rolling", (texts[owner],), total)

        self._scores(prompts, where, "loglikelihood_rolling", keep)
        return [float(total) for total in totals]

    def _loglikelihood_tokens(
        self, requests: list[tuple[Any, list[int], list[int]]], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        prompts = [self._prompt(context, continuation) for _, context, continuation in requests]

        def where(index: int) -> str:
            return f"request {index}"

        return self._scores(prompts, where, "loglikelihood")

    def _scores(
        self,
        prompts: Sequence[ScoredPrompt],
        where: Callable[[int], str],
        title: str,
        keep: Callable[[int, Score], None] = lambda *_: None,
    ) -> list[tuple[float, bool]]:
        scores = score(self._engine.model, prompts, where, title, keep)
        return [(answer.total, answer.greedy) for answer in scores]

    def _prompt(self, context: list[int], continuation: list[int]) -> ScoredPrompt:
        context_ids = np.asarray(context, np.int32)
        continuation_ids = np.asarray(continuation, np.int32)
        if self._engine.is_encoder_decoder:
            return rendition_prompt(context_ids, continuation_ids, self.max_length)
        return span_prompt(context_ids, continuation_ids, self.max_length)

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Return the text that the model writes after each context, up to a stop."""
        generator = Generator(
            self._engine,
            self._encoder,
            self.arguments.add_bos_token,
            self.arguments.think_end_token,
        )

        def keep(index: int, text: str) -> None:
            self.cache_hook.add_partial("generate_until", requests[index].args, text)

        return generator.answer(list(map(_texts, requests)), list(map(_where, requests)), keep)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """Return the chosen template; one chosen by its name is applied from then on."""
        text: str | None = super().chat_template(chat_template)
        self._named_template = None
        if isinstance(chat_template, str):
            self._named_template = text
        return text

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Return the text of a chat by the tokenizer's template."""
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
            # Some templates refuse a system text.
            return render([message for message in chat_history if message["role"] != "system"])

    def get_model_info(self) -> dict[str, Any]:
        """Return the facts of the model for the results file."""
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
        """Keep answers in the harness's cache.  Raises UsageError for another model's cache."""
        cached = getattr(cache_hook, "dbdict", None)
        if cached is not None:
            stamp(cached, self._identity)
        super().set_cache_hook(cache_hook)

    @property
    def _identity(self) -> str:
        """Return all that an answer depends on, without the texts of a request."""
        model = self._engine.model
        parts = [
            model.digest,
            model.tokenizer.digest,
            model.dtype,
            self.max_length,
            self.prefix_token_id,
            self.arguments.boundary,
            self.arguments.add_bos_token,
            self.arguments.think_end_token,
        ]
        return json.dumps(parts)


def _request(instance: Instance) -> Request:
    context, continuation = _texts(instance)
    # The choices of a document are encoded together if the boundary compares them.
    group = (getattr(instance, "task_name", None) or "", getattr(instance, "doc_id", None) or 0)
    return Request(context, continuation, _where(instance), group)


def _texts(instance: Instance) -> tuple[str, Any]:
    """Return the two texts of a request.  Raises UsageError for others, such as images."""
    if len(instance.args) != 2:
        raise UsageError(
            f"{_where(instance)} has inputs other than text; the model choicewise takes only text"
        )
    context, continuation = instance.args
    return context, continuation


def _where(instance: Instance) -> str:
    name = getattr(instance, "task_name", None) or "a request"
    return f"{name}, document {getattr(instance, 'doc_id', None)}"
