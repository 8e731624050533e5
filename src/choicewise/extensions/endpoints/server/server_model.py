"""A server as a model: its tokenizer, its window, and which way each question is asked."""

from __future__ import annotations

import hashlib
import os
import weakref
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

from choicewise.data.hub import Download, hub_name
from choicewise.errors import ChoicewiseError, ModelError
from choicewise.extensions.endpoints.server.address import KEY_VARIABLE, ServerAddress
from choicewise.extensions.endpoints.server.faults import ServerFailed, Unanswerable
from choicewise.extensions.endpoints.server.http import Client
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

WINDOW: Final = (
    2048  # tokens of prompt and answer where neither the server nor the user says how many fit
)


class ServerModel:
    """The model that the server at ``address`` serves.

    ``tokenizer``: the name of its tokenizer (:func:`named_tokenizer`), by default where the server
    says that its weights come from.  ``window``: the most input tokens, as of a model that runs here; by default as
    many as the server takes with what it generates.
    ``notes``: what users should know of how it is asked; ``say`` gets a line now and then while a server is waited for.

    The server is asked at once what it serves, and how it can be asked when that first matters.  Raises ModelError
    where the model or its tokenizer can't be had, and whenever the server fails.
    """

    device = "server"
    kind_name = "server"
    dtype = "unknown"
    recipe = None
    planned = None
    """What the server's cache will have is not known."""

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
        self.client = (
            Client(address, os.environ.get(KEY_VARIABLE), say=say) if client is None else client
        )
        weakref.finalize(self, self.client.close)
        self.served: ServerFacts = read_server_facts(self.client, address.model)
        self.name, self.takes = self.served.model, self.served.window
        """``takes``: tokens of prompt and answer that the server says it takes; None where it does not say."""
        self.notes = list[str]()
        self._completions = self._has_completions()
        self.tokenizer, self._tokenizer_name = self._tokenizer(tokenizer, progress)
        self._asked = window
        self._takes = self._fitting(window)

    @cached_property
    def chosen(self) -> ChosenRoutes:
        """How the server can be asked, as its probe says; raises ModelError as the class says."""
        chosen = self._probed()
        if named := other_name(self.served, self.client.named):
            own = self.served.model
            self.notes.append(
                f"the server calls {own} {named} in its answers; another name stops the run"
            )
        return chosen

    @property
    def window(self) -> int:
        """The most input tokens: those named, or what the server takes without the token that it generates.

        A way of asking that sends spans whole sends their last token, too, which is no input of a model that runs here.
        Raises ModelError where more are named than the server takes.
        """
        most = self._takes - (2 if isinstance(self.chosen.score, WholeSpans) else 1)
        if self._asked is None:
            return most
        if self.served.window is not None and self._asked > most:
            raise self._too_wide(most)
        return self._asked

    @property
    def supports(self) -> frozenset[type]:
        """The kinds of question that some way of asking answers."""
        return frozenset[type]().union(*(route.supports for route in self.chosen.routes))

    @property
    def digest(self) -> str:
        """64 hex digits of the server's names of the model, its root, the tokenizer and the ways of asking."""
        # First how it is asked, as the probe shows what answers call the model.
        routes = [route.name for route in self.chosen.routes]
        named = other_name(self.served, self.client.named)
        identity = (
            self.served.model,
            self.served.root,
            self.tokenizer.digest,
            *routes,
            *filter(None, [named]),
        )
        return hashlib.sha256("\n".join(identity).encode()).hexdigest()

    @property
    def record(self) -> ServerRecord:
        """What a run keeps of it."""
        served, chosen = self.served, self.chosen
        return ServerRecord(
            model=served.model,
            route="; ".join(each.name for each in chosen.routes),
            root=served.root,
            software=served.software,
            tokenizer=self._tokenizer_name,
            probes=dict(chosen.probes),
            noise=chosen.check.noise,
            named=other_name(served, self.client.named),
        )

    def probe_now(self) -> Mapping[str, float]:
        """The probe's log-probabilities (nats) as the server gives them now, by text.

        Raises ModelError where the server can't be asked as before.
        """
        return self._probed().probes

    def _probed(self) -> ChosenRoutes:
        probe = Probe(self.client, self.served, self.tokenizer, self._tokenizer_name)
        return probe.chosen_routes(self._completions)

    @property
    def selfcheck(self) -> SelfCheck:
        """The way of asking that was taken, why others were refused, and how far answers differ."""
        return self.chosen.check

    def check(self, depth: int) -> SelfCheck:
        """The same: the probe does not depend on the ``depth``."""
        return self.chosen.check

    @property
    def computed(self) -> int | None:
        """Tokens that the server says it read and did not have in its cache; None where it does not say."""
        return self.client.computed

    @property
    def front(self) -> tuple[int, ...] | None:
        """The tokens that the server puts before a text, all others being ours; None where it does not say."""
        return self.chosen.front

    @property
    def requests(self) -> int:
        """Requests that the server answered so far."""
        return self.client.requests

    def requests_for(self, questions: Sequence[Prompt]) -> int:
        """How many requests ``questions`` take; those that can't be asked take none."""
        by_route = defaultdict[Route, list[tuple[int, Prompt]]](list)
        for index, question in enumerate(questions):
            route, objection = self._judged(question)
            if route is not None and objection is None:
                by_route[route].append((index, question))
        return sum(1 for route, asked in by_route.items() for _ in route.calls(asked))

    def objection(self, question: Prompt) -> str | None:
        """Why the server can't be asked ``question``; None where it can."""
        return self._judged(question)[1]

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        """The answers as they come; a question that can't be answered is unanswered, with the reason.

        Raises ModelError where the server fails.
        """
        by_route = defaultdict[Route, list[tuple[int, Prompt]]](list)
        for index, question in enumerate(questions):
            route, reason = self._judged(question)
            if reason is None and question.inputs > self.window:
                reason = f"{question.inputs + 1} tokens are too many for {self.name}, whose window is {self.window}"
            if reason is not None:
                yield index, unanswered(question, reason)
            elif route is not None:
                by_route[route].append((index, question))
        for route, asked in by_route.items():
            given = ask(self.client, route, asked, self.served.model)
            longest = max(question.inputs + 1 for _, question in asked)
            if isinstance(route, ByLength) and (whole := route.ranking(longest)) is not None:
                again = partial(ask, self.client, whole, model=self.served.model)
                given = with_label_ranks(given, dict(asked), again)
            yield from given

    def close(self) -> None:
        """End every connection."""
        self.client.close()

    def _judged(self, question: Prompt) -> tuple[Route | None, str | None]:
        """The way to ask ``question``, and why it can't be asked: where there is no way, or the way objects."""
        chosen, context = self.chosen, getattr(question, "context", None)
        chat = context is not None and chat_messages(self.tokenizer, context) is not None
        if isinstance(question, Generation):
            route = chosen.chat_generate if chat else chosen.generate
        else:
            route = chosen.chat_score if chat else chosen.score
        if route is not None and type(question) in route.supports:
            return route, route.objection(question)
        if type(question) in self.supports:
            return None, "the server takes chats only, and this is none; ask it as a chat"
        refused = next(
            (trial.refused for trial in reversed(chosen.check.trials) if trial.refused), ""
        )
        return None, f"the server can't be asked a {type(question).__name__}" + (
            f" ({refused})" if refused else ""
        )

    def _has_completions(self) -> bool:
        try:
            self.client.post(
                "completions", {"model": self.served.model, "max_tokens": 1, "prompt": "a"}
            )
        except Unanswerable:
            pass
        except ServerFailed as error:
            if error.status not in NOT_THERE:
                raise
            return False
        return True

    def _tokenizer(self, named: str | None, progress: Download | None) -> tuple[Tokenizer, str]:
        if named is not None:
            tokenizer, name = named_tokenizer(named, progress), named
        elif self._completions:
            tokenizer, name = _served_tokenizer(self.served, progress)
        else:
            tokenizer, name = ByteTokenizer(), BYTE_TOKENS
        if tokenizer.chat is None:  # then the server may know how to write chats
            message = {"role": "user", "content": "Say yes."}
            body = {"model": self.served.model, "messages": [message], "max_tokens": 1}
            if answer_if_offered(self.client, "chat/completions", body):
                inner: Any = getattr(tokenizer, "inner", tokenizer)
                inner.chat = ServedChat()
        return tokenizer, name

    def _fitting(self, asked: int | None) -> int:
        """Tokens that the server takes, of prompt and answer together; ``asked``: input tokens that the user names."""
        said = self.served.window
        if asked is not None and asked < 1:
            raise ModelError(f"window is {asked} tokens; it must be at least 1, or left out")
        if said is not None and asked is not None and asked >= said:
            raise self._too_wide(said - 1)
        if said is None and asked is None:
            self.notes.append(
                f"the server does not say how many tokens fit; {WINDOW} are assumed (name a window)"
            )
        return WINDOW if said is None else said

    def _too_wide(self, most: int) -> ModelError:
        return ModelError(
            f"window is {self._asked} input tokens, but {self.name} is served with {self.served.window} tokens, of"
            f" prompt and answer, so that it takes {most}; serve it with more, or name a window of at most {most}, here"
            " and for the models that it is compared with"
        )

    def __repr__(self) -> str:
        return f"ServerModel({str(self.client.address)!r})"


def _served_tokenizer(
    served: ServerFacts, progress: Download | None = None
) -> tuple[Tokenizer, str]:
    """The tokenizer of what the server says that it serves, and its name; ModelError where that can't be had here."""
    problems = list[str]()
    for name in dict.fromkeys(filter(None, (served.root, served.model))):
        try:
            if Path(name).is_dir() or (hub_name(name) is not None and not name.startswith("/")):
                return named_tokenizer(name, progress), name
        except (ChoicewiseError, OSError) as error:
            problems.append(f"{name}: {error}")
    reason = f" ({'; '.join(problems)})" if problems else ""
    raise ModelError(
        f"the tokenizer of the served model {served.model} is not on this machine{reason}; {NAME_IT}"
    )
