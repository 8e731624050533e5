"""How vLLM is asked for log-probabilities of given tokens: requests from questions, answers from outputs, every check.

A question takes the way that computes the fewest tokens of those that an engine has: label ids for one next token; for
several trace replay, prompt rows, a request for each place, or prompt log-probabilities.  An engine in a child process
and a server's ``POST /inference/v1/generate`` are asked in the same way; what either gives is an :class:`Output`.
Nothing here imports vLLM.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from heapq import merge
from typing import Any, Final, NamedTuple

import numpy as np

from choicewise.extensions.endpoints.server.faults import JSON, Unanswerable
from choicewise.extensions.endpoints.server.routes import (
    Call,
    Node,
    Part,
    Route,
    choice,
    field,
    is_text,
    joined_scores,
    nodes,
    number,
)
from choicewise.questions import (
    NOT_FIRST,
    UNKNOWN,
    Ended,
    Generation,
    Mass,
    Prompt,
    Sampling,
    Span,
    TokenScores,
)

TRACE, ROWS, PLACES, PROMPTS = (
    "trace replay",
    "prompt rows",
    "label ids",
    "prompt log-probabilities",
)
"""The ways to ask; the last but one takes a request for every token of a continuation."""

COSTS: Final[Mapping[str, str]] = {
    TRACE: "continuations are forced token by token after a context of which vLLM's cache has all but a block",
    ROWS: "continuations are the end of a prompt of whose context vLLM's cache has all but a block",
    PLACES: "every token of a continuation is a request, of which vLLM's cache has all but a block",
    PROMPTS: "every continuation is computed with its context from the first token on, without vLLM's cache",
}
"""Way → what it costs, in words."""

_WITHOUT_CACHE: Final[Mapping[str, str]] = {
    TRACE: "continuations are forced token by token after a context that is computed for each of them",
    ROWS: "continuations are the end of a prompt that is computed from the first token on",
    PLACES: "every token of a continuation is a request that is computed from the first token on",
}
"""Way → what it costs if vLLM was started without a prefix cache."""

MOST_IDS: Final = 128  # MAX_LOGPROB_TOKEN_IDS of vLLM: label ids of one request
MOST_MEMBERS: Final = MOST_IDS * 64  # tokens of a set whose total probability is asked for
BLOCK: Final = 16  # tokens of a block of vLLM's cache unless it is told otherwise
SERVED_PATH: Final = "/inference/v1/generate"
NO_ROUTE: Final = (
    f"{SERVED_PATH} is off: start vLLM with --enable-scale-out and --enable-trace-replay"
)

_GREEDY: Final[Mapping[str, Any]] = {"temperature": 0.0, "detokenize": False}
_LISTED: Final = (
    2  # tokens of a place that a server lists at least: the forced one, and the likeliest other
)
_HALF: Final = math.log(
    0.5
)  # nats above which a token is the likeliest one, whatever the others have


class Abilities(NamedTuple):
    """What an engine can be asked: its ``ways`` by name, those first that are better where they cost the same.

    ``block``: tokens of a block of its cache, more than ``longest`` if it has none; ``longest``: tokens of a prompt
    and of what is generated after it together; ``vocabulary``: how many ids it knows.
    """

    ways: tuple[str, ...]
    block: int
    longest: int
    vocabulary: int

    @property
    def caches(self) -> bool:
        """Whether a prompt can fill a block of the cache."""
        return self.block <= self.longest

    def cost_in_words(self, way: str) -> str:
        """Return what ``way`` costs with the engine's cache, or without one."""
        if self.caches or way == PROMPTS:
            return COSTS[way]
        return f"{_WITHOUT_CACHE[way]}, as enable_prefix_caching is off"


class Output(NamedTuple):
    """What came of a request.

    ``prompt``: tokens that were read, of which ``cached`` came from the cache (None: not said).  ``tokens``: those
    generated; ``logprobs``: for each of them [id, nats, rank from 1] of what was asked for; ``rows``: nats of prompt
    rows [rows, ids]; ``prompts``: as ``logprobs`` for every prompt token, None for the first.  ``finish``: vLLM's
    reason for the end.
    """

    prompt: int
    cached: int | None
    tokens: Sequence[int]
    logprobs: Sequence[Sequence[Sequence[Any]]] | None = None
    rows: Sequence[Sequence[float]] | None = None
    prompts: Sequence[Sequence[Sequence[Any]] | None] | None = None
    finish: str | None = None

    @property
    def computed(self) -> int:
        """Input tokens that went through the model; of what is generated the last one is no input."""
        return self.prompt - (self.cached or 0) + max(len(self.tokens) - 1, 0)


class EngineRequest(NamedTuple):
    """``prompt`` (ids) and ``params``, the arguments of vLLM's ``SamplingParams``.

    ``read`` gives the scores of each of ``parts`` from the output, or raises Unanswerable.  ``retry``: what is asked
    where the output has no rows, because the cache had the very rows that were wanted.
    """

    prompt: list[int]
    params: dict[str, Any]
    parts: list[Part]
    read: Callable[[Output], list[TokenScores]]
    retry: EngineRequest | None = None


def served_trace(model: str, window: int | None) -> EngineRoute:
    """Trace replay at a server that takes ``window`` tokens; of ids beyond its vocabulary it says so itself."""
    return EngineRoute(Abilities((TRACE,), BLOCK, window or 1 << 30, 1 << 30), model)


def output_of(result: Any) -> Output:
    """What vLLM's ``RequestOutput`` says, in plain values that JSON has."""
    (completion,) = result.outputs
    rows = getattr(result, "prompt_token_id_logprobs", None)
    listed = [
        None if each is None else [*map(_listed, each)]
        for each in (completion.logprobs, result.prompt_logprobs)
    ]
    return Output(
        len(result.prompt_token_ids),
        result.num_cached_tokens,
        [int(token) for token in completion.token_ids],
        listed[0],
        None if rows is None else np.asarray(rows).tolist(),
        listed[1],
        completion.finish_reason,
    )


def _listed(place: Mapping[int, Any] | None) -> Any:
    return (
        None
        if place is None
        else [[int(token), float(each.logprob), each.rank] for token, each in place.items()]
    )


def hit(tokens: int, block: int) -> int:
    """Of a prompt of ``tokens``, the most that the cache can have: whole blocks, and never the last token."""
    return block * ((tokens - 1) // block)


def cost(way: str, context: int, continuation: int, block: int) -> int:
    """Input tokens to compute for a continuation of K tokens after C of a context that the cache has.

    With h(C) for :func:`hit`: C - h(C) + K - 1 by trace, one more by rows, the sum of C + j - h(C + j) over all places
    j by label ids, and C + K without the cache.
    """
    if way == PROMPTS:
        return context + continuation
    if way == PLACES:
        return sum(place - hit(place, block) for place in range(context, context + continuation))
    return context - hit(context, block) + continuation - (way == TRACE)


def way_of(span: Span, abilities: Abilities) -> str:
    """How ``span`` is asked: by label ids if it is one token, else by the way that computes the fewest.

    It looks at one span alone, so that the same question is always asked in the same way.  A way that sends the whole
    span as a prompt needs room for a token that is generated after it.
    """
    context, count = len(span.context), len(span.continuation)
    if count == 1 and PLACES in abilities.ways:
        return PLACES
    ways = [
        way
        for way in abilities.ways
        if way not in (ROWS, PROMPTS) or context + count < abilities.longest
    ]
    return min(ways, key=lambda way: cost(way, context, count, abilities.block), default=PLACES)


def objection(question: Prompt, abilities: Abilities) -> str | None:
    """Why ``question`` can't be asked; None where it can.

    vLLM cuts a trace that does not fit and says nothing of it, and a request that it refuses takes the answers of all
    others in its batch with it, so everything is checked before it is sent.
    """
    if not isinstance(question, Span | Mass | Generation):
        return f"vLLM can't be asked a {type(question).__name__}"
    context, tokens = len(question.context), question.context
    if not context:
        return "the context has no token, and vLLM takes no empty prompt; use a protocol that begins with BOS or EOS"
    room = question.most if isinstance(question, Generation) else 1
    if isinstance(question, Span):
        room = len(question.continuation)
        if not room:
            return "the continuation has no token, so that there is nothing to score"
        tokens = np.concatenate([tokens, question.continuation])
    wrong = tokens[(tokens < 0) | (tokens >= abilities.vocabulary)]
    if len(wrong):
        return f"token {wrong[0]} is none of the model's {abilities.vocabulary}; its tokenizer belongs to another model"
    if isinstance(question, Mass):
        known = int(np.searchsorted(question.members.ids, abilities.vocabulary))
        if not 0 < known <= MOST_MEMBERS:
            return f"the total probability of {known} tokens is asked for; vLLM is asked for {MOST_MEMBERS} at most"
    if context + room > abilities.longest:
        return (
            f"{context} tokens of context and {room} more do not fit the {abilities.longest} that vLLM takes; name a"
            " wider window, or a protocol with a shorter prompt"
        )
    return None


_Ordered = tuple[bytes, Node | None, list[tuple[int, Span]]]


class EngineRoute(Route):
    """Spans and masses by the cheapest way that ``abilities`` names.

    Requests come in the order of the token tree, all options of a context together: the first one fills the blocks of
    the cache that the next ones read.
    """

    supports = frozenset({Span, Mass})

    def __init__(self, abilities: Abilities, model: str = "") -> None:
        """``model``: its name at a server."""
        super().__init__(model)
        self.abilities = abilities
        longer = next((way for way in abilities.ways if way != PLACES), PLACES)
        self.name = f"vLLM, {longer}"
        self.cost = abilities.cost_in_words(longer)

    def objection(self, question: Prompt) -> str | None:
        """As :func:`objection`."""
        return objection(question, self.abilities)

    def parts(self, question: Prompt) -> int:
        """Of a span by label ids as many as it has tokens, of a set one for each request."""
        if isinstance(question, Mass):
            return math.ceil(len(question.members.below(self.abilities.vocabulary)) / MOST_IDS)
        assert isinstance(question, Span)
        return len(question.continuation) if way_of(question, self.abilities) == PLACES else 1

    def joined(self, question: Prompt, parts: Sequence[TokenScores]) -> TokenScores:
        """The tokens of a span one after another; of a set the likeliest member, and the log of the sum of all."""
        return joined_scores(question, parts)

    def calls(self, questions: Sequence[tuple[int, Prompt]]) -> Iterator[Call]:
        """The same for a server: posted to :data:`SERVED_PATH`.

        It lists as many tokens of a place as are asked for, the forced one first: so one more, which is the likeliest.
        """
        for request in self.requests(questions):
            params = {**request.params, "logprobs": request.params["logprobs"] + 1}
            body = {"model": self._model, "token_ids": request.prompt, "sampling_params": params}
            yield Call(SERVED_PATH, body, request.parts, partial(_read_served, request))

    def requests(self, questions: Sequence[tuple[int, Prompt]]) -> Iterator[EngineRequest]:
        """One for every prefix that is read by label ids, one for every other span."""
        labels = list[tuple[int, Span | Mass]]()
        spans = defaultdict[tuple[bytes, bytes], list[tuple[int, Span]]](list)
        for index, question in questions:
            if isinstance(question, Mass) or (
                isinstance(question, Span) and way_of(question, self.abilities) == PLACES
            ):
                labels.append((index, question))
            elif isinstance(question, Span):
                spans[question.context.tobytes(), question.continuation.tobytes()].append(
                    (index, question)
                )
        by_labels: Iterator[_Ordered] = (
            (np.asarray(node.prefix, np.int32).tobytes(), node, []) for node in nodes(labels)
        )
        by_spans: Iterator[_Ordered] = (
            (name[0], None, spans[name])
            for name in sorted(spans)  # as the tree orders its contexts
        )
        for _, node, same in merge(by_labels, by_spans, key=lambda each: each[0]):
            if node is not None:
                yield from self._at_node(node)
            else:
                yield self._whole([Part(index) for index, _ in same], same[0][1])

    def _at_node(self, node: Node) -> Iterator[EngineRequest]:
        wanted = sorted(node.tokens)
        for start in range(0, len(wanted), MOST_IDS):
            ids = wanted[start : start + MOST_IDS]
            pairs = [(part, [token]) for token in ids for part in node.tokens[token]]
            yield label_request(
                node.prefix, ids, [part for part, _ in pairs], [targets for _, targets in pairs]
            )
        for members, parts in node.sets:
            known = members.below(self.abilities.vocabulary).tolist()
            for chunk in range(0, len(known), MOST_IDS):
                ids = known[chunk : chunk + MOST_IDS]
                own = [Part(part.question, chunk // MOST_IDS) for part in parts]
                yield label_request(node.prefix, ids, own, [ids] * len(own))

    def _whole(self, parts: list[Part], span: Span) -> EngineRequest:
        context, continuation = span.context.tolist(), span.continuation.tolist()
        if (way := way_of(span, self.abilities)) == TRACE:
            return trace_request(context, continuation, parts)
        if way == ROWS:
            return rows_request(context, continuation, parts)
        return prompt_request(context, continuation, parts)


class ByLength(Route):
    """Of a server: spans of several tokens go to ``whole`` where that computes less, everything else to ``chosen``.

    Asked by next tokens, a span takes a request for each of its tokens, of whose prompts the cache has all but a block.
    Asked whole it takes one: by prompt log-probabilities (``way``), which are computed from the first token on, so
    where that is less by :func:`cost`; by a way that reads the cache always.  The rule looks at one span alone, so that
    the same question is always asked in the same way.  ``longest``: tokens that a prompt of ``whole`` may have.
    """

    def __init__(
        self, chosen: Route, whole: Route, longest: int | None = None, way: str = PROMPTS
    ) -> None:
        self._chosen, self._whole, self._longest, self._way = chosen, whole, longest, way
        self.name, self.supports = (
            f"{chosen.name}, {whole.name} of long continuations",
            chosen.supports,
        )
        self.cost = f"{chosen.cost}; of long continuations {whole.cost}"

    def ranking(self, longest: int) -> Route | None:
        """The way that gives ranks of next tokens, where prompts of ``longest`` tokens can be asked so."""
        fits = self._longest is None or longest <= self._longest
        return self._whole if fits and self._way != ROWS else None

    def objection(self, question: Prompt) -> str | None:
        """What the way of asking that is chosen objects."""
        return self._of(question).objection(question)

    def parts(self, question: Prompt) -> int:
        """As many as that way of asking has."""
        return self._of(question).parts(question)

    def calls(self, questions: Sequence[tuple[int, Prompt]]) -> Iterator[Call]:
        """First everything asked by next tokens, then what is asked whole."""
        for route in (self._chosen, self._whole):
            yield from route.calls(
                [(index, question) for index, question in questions if self._of(question) is route]
            )

    def joined(self, question: Prompt, parts: Sequence[TokenScores]) -> TokenScores:
        """As that way of asking does it."""
        return self._of(question).joined(question, parts)

    def _of(self, question: Prompt) -> Route:
        if not isinstance(question, Span):
            return self._chosen
        before, scored = len(question.context), len(question.continuation)
        if scored == 1 or (self._longest is not None and before + scored > self._longest):
            return self._chosen
        less = cost(self._way, before, scored, BLOCK) < cost(PLACES, before, scored, BLOCK)
        return self._whole if self._way != PROMPTS or less else self._chosen


class TextRoute(Route):
    """Free generation; ``ends``: tokens that end a text, ``token_bytes``: the bytes of every token."""

    name = "vLLM, generated tokens"
    cost = "a request for every generation"
    supports = frozenset({Generation, Sampling})

    def __init__(self, ends: Collection[int], token_bytes: Sequence[bytes]) -> None:
        super().__init__("")
        self._ends, self._token_bytes = ends, token_bytes

    def calls(self, questions: Sequence[tuple[int, Prompt]]) -> Iterator[Call]:
        """None: servers generate by their completions."""
        raise NotImplementedError

    def requests(self, questions: Sequence[tuple[int, Prompt]]) -> Iterator[EngineRequest]:
        """One for every generation, those with a common beginning one after another."""
        asked = [
            (index, question) for index, question in questions if isinstance(question, Generation)
        ]
        for index, generation in sorted(asked, key=lambda each: each[1].context.tobytes()):
            yield generation_request(generation, self._ends, self._token_bytes, [Part(index)])


def label_request(
    prefix: list[int], ids: Sequence[int], parts: list[Part], targets: Sequence[Sequence[int]]
) -> EngineRequest:
    """``logprob_token_ids``: the log-probabilities of ``ids`` after ``prefix``, of which every part has its targets."""

    def read(output: Output) -> list[TokenScores]:
        (listed,) = _places(output, len(prefix), 1)
        if lacking := [token for token in ids if token not in listed]:
            raise Unanswerable(
                f"vLLM gives no log-probability of token {lacking[0]}, though it was asked for"
            )
        nats = {token: number(listed[token][0]) for token in {*ids, *output.tokens}}
        highest = nats[
            output.tokens[0]
        ]  # the rank that vLLM gives a label is the place in the list

        def score(each: Sequence[int]) -> TokenScores:
            ranks = [0 if nats[token] >= highest else NOT_FIRST for token in each]
            return TokenScores.of(each, [nats[token] for token in each], ranks)

        return [score(each) for each in targets]

    return EngineRequest(
        prefix, {**_GREEDY, "max_tokens": 1, "logprob_token_ids": list(ids)}, parts, read
    )


def trace_request(context: list[int], trace: list[int], parts: list[Part]) -> EngineRequest:
    """``trace_decode_token_ids``: the tokens of ``trace`` in place of those that would be generated.

    ``max_tokens`` is 16 unless it is named, which cuts a trace that is longer.  With the likeliest token of every place
    its own rank is 0 also where another one has the same log-probability; vLLM counts that one.
    """

    def read(output: Output) -> list[TokenScores]:
        if list(output.tokens) != trace:
            same = next(
                (
                    at
                    for at, pair in enumerate(zip(output.tokens, trace, strict=False))
                    if pair[0] != pair[1]
                ),
                None,
            )
            what = (
                f"{len(output.tokens)} tokens"
                if same is None
                else f"token {output.tokens[same]} at place {same}"
            )
            raise Unanswerable(
                f"vLLM answers with {what} where {len(trace)} were forced: it did not replay the trace"
            )
        if output.finish != "length":
            raise Unanswerable(
                f"vLLM ended a forced continuation for another reason than its length ({output.finish})"
            )
        return [_of_places(trace, _places(output, len(context), len(trace)))] * len(parts)

    params = {**_GREEDY, "max_tokens": len(trace), "logprobs": 1, "trace_decode_token_ids": trace}
    return EngineRequest(context, params, parts, read)


def rows_request(
    context: list[int], continuation: list[int], parts: list[Part], cached: bool = True
) -> EngineRequest:
    """``prompt_logprob_token_ids``: rows of the prompt, by themselves; ``cached``: what precedes them may be read.

    Where the cache has more than what precedes them, vLLM gives no rows, and the request is repeated without it.
    """

    def read(output: Output) -> list[TokenScores]:
        _check_prompt(output, len(context) + len(continuation))
        if output.rows is None:
            raise Unanswerable("vLLM gives no prompt rows, though its cache was not to be read")
        shape = [len(row) for row in output.rows]
        if shape != [1] * len(continuation):
            raise Unanswerable(
                f"vLLM gives {len(shape)} prompt rows of another shape than the {len(continuation)} asked"
            )
        nats = [number(row[0]) for row in output.rows]
        return [
            TokenScores.of(continuation, nats, [0 if each > _HALF else UNKNOWN for each in nats])
        ] * len(parts)

    params = {
        **_GREEDY,
        "max_tokens": 1,
        "prompt_logprob_token_ids": [[token] for token in continuation],
    }
    params |= {"prompt_logprob_start": len(context) - 1, "skip_reading_prefix_cache": not cached}
    retry = rows_request(context, continuation, parts, cached=False) if cached else None
    return EngineRequest([*context, *continuation], params, parts, read, retry)


def prompt_request(context: list[int], continuation: list[int], parts: list[Part]) -> EngineRequest:
    """``prompt_logprobs``, which are wrong or of other rows wherever the cache was read: that is refused twice."""
    whole = [*context, *continuation]

    def read(output: Output) -> list[TokenScores]:
        _check_prompt(output, len(whole))
        if output.cached:
            raise Unanswerable(
                f"vLLM read {output.cached} tokens of a prompt from its cache, whose rows are not computed"
            )
        if output.prompts is None or len(output.prompts) != len(whole):
            count = 0 if output.prompts is None else len(output.prompts)
            raise Unanswerable(
                f"vLLM gives log-probabilities of {count} prompt tokens where {len(whole)} were sent"
            )
        return [_of_places(continuation, [*map(_by_id, output.prompts[len(context) :])])] * len(
            parts
        )

    params = {**_GREEDY, "max_tokens": 1, "prompt_logprobs": 1, "skip_reading_prefix_cache": True}
    return EngineRequest(whole, params, parts, read)


def generation_request(
    generation: Generation, ends: Collection[int], token_bytes: Sequence[bytes], parts: list[Part]
) -> EngineRequest:
    """Free generation, greedy or sampled, up to one of ``ends`` or a stop; what is generated is cut here once more.

    Stops are texts to vLLM, which ends with the token that completes one; where a thought may come first none is named.
    """
    stops = (
        [stop.decode() for stop in generation.stops if is_text(stop)]
        if generation.opened is None
        else []
    )

    def read(output: Output) -> list[TokenScores]:
        tokens = list(output.tokens)
        if len(tokens) > generation.most:
            raise Unanswerable(
                f"vLLM generates {len(tokens)} tokens where {generation.most} were asked for"
            )
        if output.finish not in ("stop", "length"):
            raise Unanswerable(
                f"vLLM ended the text for another reason than its end ({output.finish})"
            )
        scores = _of_places(tokens, _places(output, len(generation.context), len(tokens)))
        scores = scores.first(generation.before_stop(tokens, token_bytes))
        if (
            generation.sampling is not None
            and len(scores.tokens)
            and int(scores.tokens[-1]) in ends
        ):
            scores = scores.first(
                len(scores.tokens) - 1
            )  # a sampled text ends before the token that ends it
        finish = generation.finish(scores.tokens.tolist(), token_bytes, ends)
        return [replace(scores, ended=Ended(finish))] * len(parts)

    params: dict[str, Any] = {
        "temperature": 0.0,
        "max_tokens": generation.most,
        "logprobs": 1,
        "ignore_eos": True,
    }
    params |= {"stop_token_ids": sorted(ends), "stop": stops, "detokenize": bool(stops)}
    if generation.sampling is not None:
        params |= {
            "temperature": 1.0,
            "seed": int.from_bytes(generation.sampling.stream[:4], "big") >> 1,
        }
    return EngineRequest(generation.context.tolist(), params, parts, read)


def _read_served(request: EngineRequest, answer: JSON) -> list[TokenScores]:
    """The scores from what a server answers; what it writes as -9999 stands for no number, which is refused."""
    given, usage = choice(answer), answer.get("usage")
    content = (
        (given.get("logprobs") or {}).get("content")
        if isinstance(given.get("logprobs"), dict | None)
        else None
    )
    if not isinstance(content, list):
        raise Unanswerable("the server gives no log-probabilities of what it generated")
    places = [
        [
            [each.get("token_id"), each.get("logprob"), each.get("rank")]
            for each in (place, *place["top_logprobs"])
        ]
        for place in content
        if isinstance(place, dict) and isinstance(place.get("top_logprobs"), list)
    ]
    if len(places) != len(content) or any(
        len({token for token, *_ in place}) < _LISTED for place in places
    ):
        raise Unanswerable(
            "the server lists no other token beside one that was forced, so that no rank is known"
        )
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    sent = count if isinstance(count, int) else len(request.prompt)
    output = Output(
        sent, cached, field(given, "token_ids", list), places, finish=given.get("finish_reason")
    )
    return request.read(output)


def _check_prompt(output: Output, tokens: int) -> None:
    if output.prompt != tokens:
        raise Unanswerable(f"vLLM read {output.prompt} tokens where {tokens} were sent")


def _by_id(place: Any) -> dict[int, tuple[Any, Any]]:
    """id → (nats, rank from 1) of what is listed at a place: the order of the list says nothing."""
    return {} if place is None else {each[0]: (each[1], each[2]) for each in place}


def _places(output: Output, prompt: int, count: int) -> list[dict[int, tuple[Any, Any]]]:
    """What is listed at each of ``count`` generated tokens; Unanswerable where there are others."""
    _check_prompt(output, prompt)
    given = 0 if output.logprobs is None else len(output.logprobs)
    if given != count or len(output.tokens) != count:
        raise Unanswerable(
            f"vLLM gives log-probabilities at {given} places of {len(output.tokens)} tokens where {count} were due"
        )
    return [*map(_by_id, output.logprobs or ())]


def _of_places(
    tokens: Sequence[int], places: Sequence[Mapping[int, tuple[Any, Any]]]
) -> TokenScores:
    """The scores of ``tokens``, each at its place, where the likeliest one stands, too."""
    logprobs, ranks = list[float](), list[int]()
    for token, listed in zip(tokens, places, strict=True):
        if token not in listed:
            raise Unanswerable(
                f"vLLM gives no log-probability of token {token}, which it was to score"
            )
        own, rank = number(listed[token][0]), listed[token][1]
        if isinstance(rank, bool) or not isinstance(rank, int) or not 1 <= rank < 2**31:
            raise Unanswerable(f"vLLM gives {rank!r:.40} as the rank of token {token}")
        logprobs.append(own)
        ranks.append(0 if own >= max(number(nats) for nats, _ in listed.values()) else rank - 1)
    return TokenScores.of(tokens, logprobs, ranks)
