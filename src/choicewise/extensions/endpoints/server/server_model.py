"""Use the model behind a server: its tokenizer, its window, and the way for each question."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from choicewise.data.hub import Download, hub_name
from choicewise.errors import ChoicewiseError, ModelError
from choicewise.extensions.endpoints.server.address import KEY_VARIABLE, ServerAddress
from choicewise.extensions.endpoints.server.faults import ServerFailed, Unanswerable
from choicewise.extensions.endpoints.server.http import Client, ClientModel
from choicewise.extensions.endpoints.server.many_requests import ask
from choicewise.extensions.endpoints.server.probe import (
    NOT_THERE,
    ChosenRoutes,
    Probe,
    ServerFacts,
    answer_if_offered,
    other_name,
    read_server_facts,
)
from choicewise.extensions.endpoints.server.routes import (
    CHATS_ONLY,
    Numbered,
    Route,
    WholeSpans,
    chat_messages,
    unanswered,
    with_label_ranks,
)
from choicewise.extensions.endpoints.vllm.vllm_routes import ByLength
from choicewise.models.local.tokenizer import BYTE_TOKENS, NAME_IT, named_tokenizer
from choicewise.models.model import SelfCheck
from choicewise.questions import Answers, Generation, Prompt
from choicewise.records import ServerRecord
from choicewise.tokens.chat_template import ServedChat
from choicewise.tokens.tokenizer import ByteTokenizer, Tokenizer
from choicewise.util.text import text_digest

WINDOW = 2048
"""Tokens of prompt and answer if neither the server nor the user says how many fit."""


class ServerModel(ClientModel):
    """Answer from the model that the server at ``address`` serves.

    ``tokenizer``: the name of its tokenizer (:func:`named_tokenizer`), by default the origin of the
    weights that the server names.  ``window``: the most input tokens, as of a model that runs here;
    by default as many as the server takes with what it generates.  ``notes``: what users should
    know of how it is asked; ``say`` gets a line now and then while a server is waited for.

    The server is asked at once what it serves, and which ways of asking it has when that first
    matters.  Raises ModelError if there is no such model or tokenizer, and whenever the server
    fails.
    """

    kind_name = "server"

    def __init__(
        self,
        address: ServerAddress,
        *,
        tokenizer: str | None = None,
        window: int | None = None,
        progress: Download | None = None,
        client: Client | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        super().__init__(client or Client(address, os.environ.get(KEY_VARIABLE), say=say))
        self.served: ServerFacts = read_server_facts(self.client, address.model)
        self.name = self.served.model
        self.takes = self.served.window
        """Tokens of prompt and answer that the server takes; None if it does not tell."""
        self._completions = self._has_completions()
        self.tokenizer, self._tokenizer_name = self._tokenizer(tokenizer, progress)
        self._window = window
        self._check_window()

    @cached_property
    def chosen(self) -> ChosenRoutes:
        """Return the ways of asking that the probe chose; raise ModelError."""
        chosen = self._probed()
        named = other_name(self.served, self.client.named)
        if named:
            self.notes.append(f"the server answers as {named}; any other name stops the run")
        return chosen

    @property
    def window(self) -> int:
        """Return the most input tokens: those named, or all that the server takes but one.

        A way of asking that sends spans whole sends their last token too, which is no input of a
        model that runs here.  Raises ModelError if more are named than the server takes.
        """
        generated = 2 if isinstance(self.chosen.score, WholeSpans) else 1
        most = (self.takes or WINDOW) - generated
        if self._window is None:
            return most
        if self.takes is not None and self._window > most:
            raise self._too_wide(most)
        return self._window

    @property
    def supports(self) -> frozenset[type]:
        """Return the kinds of question that some way of asking answers."""
        return frozenset[type]().union(*(route.supports for route in self.chosen.routes))

    @property
    def digest(self) -> str:
        """Return 64 hex digits of the model's names, its root, its tokenizer and its routes."""
        # The probe, which chooses the routes, shows what answers call the model.
        routes = [route.name for route in self.chosen.routes]
        identity = [self.name, self.served.root, self.tokenizer.digest, *routes]
        named = other_name(self.served, self.client.named)
        if named:
            identity.append(named)
        return text_digest("\n".join(identity))

    @property
    def record(self) -> ServerRecord:
        """Return what a run keeps of the server."""
        chosen = self.chosen
        return ServerRecord(
            model=self.name,
            route="; ".join(route.name for route in chosen.routes),
            root=self.served.root,
            software=self.served.software,
            tokenizer=self._tokenizer_name,
            probes=dict(chosen.probes),
            noise=chosen.check.noise,
            named=other_name(self.served, self.client.named),
        )

    def probe_now(self) -> Mapping[str, float]:
        """Return the probe's log-probabilities (nats) that the server gives now, by text.

        Raises ModelError if the server can't be asked in the ways of before.
        """
        return self._probed().probes

    def _probed(self) -> ChosenRoutes:
        probe = Probe(self.client, self.served, self.tokenizer, self._tokenizer_name)
        return probe.chosen_routes(self._completions)

    @property
    def selfcheck(self) -> SelfCheck:
        """Return the way of asking that was taken, why others were refused, and the noise."""
        return self.chosen.check

    def check(self, depth: int) -> SelfCheck:
        """Return :attr:`selfcheck`: the probe does not depend on the ``depth``."""
        return self.chosen.check

    @property
    def front(self) -> tuple[int, ...] | None:
        """Return the tokens that the server puts before a text; None if it does not tell them."""
        return self.chosen.front

    def requests_for(self, questions: Sequence[Prompt]) -> int:
        """Count the requests that ``questions`` take; those that can't be asked take none."""
        by_route, _ = self._by_route(questions)
        count = 0
        for route, entries in by_route.items():
            count += sum(1 for _ in route.calls(entries))
        return count

    def objection(self, question: Prompt) -> str | None:
        """Return why the server can't be asked ``question``, or None."""
        return self._judged(question)[1]

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        """Yield the answers as they come; a question without one has the reason.

        Raises ModelError if the server fails.
        """
        by_route, refused = self._by_route(questions)
        for index, reason in refused:
            yield index, unanswered(questions[index], reason)
        for route, entries in by_route.items():
            answers = ask(self.client, route, entries, self.name)
            longest = max(question.inputs + 1 for _, question in entries)
            whole = route.ranking(longest) if isinstance(route, ByLength) else None
            if whole is not None:
                ask_ranked = partial(ask, self.client, whole, model=self.name)
                answers = with_label_ranks(answers, dict(entries), ask_ranked)
            yield from answers

    def _by_route(
        self, questions: Sequence[Prompt]
    ) -> tuple[dict[Route, list[Numbered]], list[tuple[int, str]]]:
        """Return the ``questions`` that each route answers, and why others can't be asked."""
        by_route = defaultdict[Route, list[Numbered]](list)
        refused = []
        for index, question in enumerate(questions):
            route, reason = self._judged(question)
            if reason is None and question.inputs > self.window:
                tokens = question.inputs + 1
                reason = (
                    f"{tokens} tokens exceed the window of {self.name} ({self.window}); use fewer "
                    "shots"
                )
            if reason is not None:
                refused.append((index, reason))
            elif route is not None:
                by_route[route].append((index, question))
        return by_route, refused

    def _judged(self, question: Prompt) -> tuple[Route | None, str | None]:
        """Return the way to ask ``question``, and why it can't be asked."""
        route = self._route(question)
        kind = type(question)
        if route is not None and kind in route.supports:
            return route, route.objection(question)
        if kind in self.supports:
            return None, CHATS_ONLY
        reason = f"the server can't answer a {kind.__name__}"
        refusals = [trial.refused for trial in self.chosen.check.trials if trial.refused]
        if refusals:
            reason = f"{reason} ({refusals[-1]})"
        return None, reason

    def _route(self, question: Prompt) -> Route | None:
        chosen = self.chosen
        context = getattr(question, "context", None)
        is_chat = context is not None and chat_messages(self.tokenizer, context) is not None
        if isinstance(question, Generation):
            return chosen.chat_generate if is_chat else chosen.generate
        return chosen.chat_score if is_chat else chosen.score

    def _has_completions(self) -> bool:
        body = {"model": self.name, "max_tokens": 1, "prompt": "a"}
        try:
            self.client.post("completions", body)
        except Unanswerable:
            return True
        except ServerFailed as error:
            if error.status in NOT_THERE:
                return False
            raise
        return True

    def _tokenizer(self, named: str | None, progress: Download | None) -> tuple[Tokenizer, str]:
        if named is not None:
            tokenizer = named_tokenizer(named, progress)
            name = named
        elif self._completions:
            tokenizer, name = _served_tokenizer(self.served, progress)
        else:
            tokenizer = ByteTokenizer()
            name = BYTE_TOKENS
        # The server may know how to write chats, if the tokenizer does not.
        if tokenizer.chat is None:
            message = {"role": "user", "content": "Say yes."}
            body = {"model": self.name, "messages": [message], "max_tokens": 1}
            if answer_if_offered(self.client, "chat/completions", body):
                inner: Any = getattr(tokenizer, "inner", tokenizer)
                inner.chat = ServedChat()
        return tokenizer, name

    def _check_window(self) -> None:
        """Raise ModelError for a named window that can't be; note that none is known."""
        if self._window is None:
            if self.takes is None:
                self.notes.append(
                    f"the server does not report its context length; using a window of {WINDOW} "
                    "tokens"
                )
            return
        if self._window < 1:
            raise ModelError(f"window is {self._window} tokens; it must be at least 1, or left out")
        if self.takes is not None and self._window >= self.takes:
            raise self._too_wide(self.takes - 1)

    def _too_wide(self, most: int) -> ModelError:
        return ModelError(
            f"window is {self._window} input tokens, but {self.name} is served with {self.takes}, "
            f"which leaves {most}. Serve it with more, or use window {most} for all compared models"
        )

    def __repr__(self) -> str:
        return f"ServerModel({str(self.client.address)!r})"


def _served_tokenizer(
    served: ServerFacts, progress: Download | None = None
) -> tuple[Tokenizer, str]:
    """Return the tokenizer of the served model and its name; raise ModelError if it is absent."""
    problems = []
    for name in dict.fromkeys(filter(None, (served.root, served.model))):
        try:
            is_here = Path(name).is_dir()
            if is_here or (hub_name(name) is not None and not name.startswith("/")):
                return named_tokenizer(name, progress), name
        except (ChoicewiseError, OSError) as error:
            problems.append(f"{name}: {error}")
    reason = f" ({'; '.join(problems)})" if problems else ""
    raise ModelError(
        f"the tokenizer of the served model {served.model} is not on this machine{reason}; "
        f"{NAME_IT}"
    )
