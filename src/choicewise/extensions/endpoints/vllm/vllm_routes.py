"""Make vLLM's requests for log-probabilities of given tokens, and check and read its outputs.

A span takes the way that computes the fewest tokens of those that an engine has: label ids for one
next token; for several tokens trace replay, prompt rows, a request for each position, or prompt
log-probabilities.  An engine in a child process and a server's ``POST /inference/v1/generate`` take
the same requests, and either gives an :class:`Output`.  Nothing here imports vLLM.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from heapq import merge
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from choicewise.extensions.endpoints.server.faults import JSON, Unanswerable, member
from choicewise.extensions.endpoints.server.routes import (
    Call,
    Node,
    Numbered,
    Part,
    Route,
    choice,
    field,
    generations,
    nodes,
    number,
    rank_from_one,
    requested,
    seed,
    text_stops,
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
from choicewise.util.jsonio import JsonMapping

TRACE = "trace replay"
ROWS = "prompt rows"
PLACES = "label ids"
PROMPTS = "prompt log-probabilities"
"""The ways to ask; label ids take a request for every token of a continuation."""

COSTS: Mapping[str, str] = {
    TRACE: "each continuation is forced token by token, with its context in vLLM's cache",
    ROWS: "each continuation is the end of a prompt, with its context in vLLM's cache",
    PLACES: "one request per token of a continuation, with its prompt in vLLM's cache",
    PROMPTS: "each continuation is computed with all of its context, without vLLM's cache",
}
"""What each way costs, in words."""

_WITHOUT_CACHE: Mapping[str, str] = {
    TRACE: "each continuation is forced token by token after all of its context",
    ROWS: "each continuation is computed with all of its context",
    PLACES: "one request per token of a continuation, computed with all of its prompt",
}
"""What each way costs if vLLM was started without a prefix cache."""

MOST_IDS = 128
"""Label ids of one request: vLLM's MAX_LOGPROB_TOKEN_IDS."""

MOST_MEMBERS = MOST_IDS * 64
"""Tokens of a set whose total probability is asked for."""

BLOCK = 16
"""Tokens of a block of vLLM's cache by default."""

SERVED_PATH = "/inference/v1/generate"
NO_ROUTE = f"{SERVED_PATH} is off: start vLLM with --enable-scale-out and --enable-trace-replay"

_GREEDY: JsonMapping = {"temperature": 0.0, "detokenize": False}

# Tokens that a server lists at a position, at least: the forced one, and the likeliest other.
_LISTED = 2

# Nats above which a token is the likeliest one, whatever the others have.
_HALF = math.log(0.5)


class Abilities(NamedTuple):
    """Describe what an engine can be asked.

    ``ways``: names, the better one of equal cost first.  ``block``: tokens of a block of its cache,
    more than ``longest`` if it has none; ``longest``: tokens of a prompt and of what is generated
    after it together; ``vocabulary``: how many ids it has.
    """

    ways: tuple[str, ...]
    block: int
    longest: int
    vocabulary: int

    def without(self, ways: Collection[str]) -> Abilities:
        """Return the abilities without these ``ways``."""
        return self._replace(ways=tuple(way for way in self.ways if way not in ways))

    def cost_in_words(self, way: str) -> str:
        """Return what ``way`` costs with the engine's cache, or without one."""
        # A prompt can fill a block of the cache.
        if self.block <= self.longest or way == PROMPTS:
            return COSTS[way]
        return f"{_WITHOUT_CACHE[way]} (enable_prefix_caching is off)"


class Output(NamedTuple):
    """Hold the output of a request.

    ``prompt``: tokens that were read, of which ``cached`` came from the cache (None if unknown).
    ``tokens``: those generated; ``logprobs``: for each of them [id, nats, rank from 1] of all that
    were wanted; ``rows``: nats of prompt rows [rows, ids]; ``prompts``: in the form of ``logprobs``
    for every prompt token, None for the first.  ``finish``: vLLM's reason for the end.
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
        """Count the input tokens that were computed; the last generated token is no input."""
        return self.prompt - (self.cached or 0) + max(len(self.tokens) - 1, 0)


class EngineRequest(NamedTuple):
    """Hold a ``prompt`` (ids) and ``params``, the arguments of vLLM's ``SamplingParams``.

    ``read`` returns the scores of each of ``parts`` from the output, or raises Unanswerable.
    ``retry``: the request to send next if the output has no rows, because the cache had the rows
    that were wanted.
    """

    prompt: list[int]
    params: JSON
    parts: list[Part]
    read: Callable[[Output], list[TokenScores]]
    retry: EngineRequest | None = None


def served_trace(model: str, window: int | None) -> EngineRoute:
    """Return trace replay at a server that takes ``window`` tokens.

    The server itself refuses ids beyond its vocabulary.
    """
    return EngineRoute(Abilities((TRACE,), BLOCK, window or 1 << 30, 1 << 30), model)


def output_of(result: Any) -> Output:
    """Return vLLM's ``RequestOutput`` in plain values that JSON has."""
    (completion,) = result.outputs
    rows = getattr(result, "prompt_token_id_logprobs", None)
    return Output(
        prompt=len(result.prompt_token_ids),
        cached=result.num_cached_tokens,
        tokens=[int(token) for token in completion.token_ids],
        logprobs=_listed(completion.logprobs),
        rows=None if rows is None else np.asarray(rows).tolist(),
        prompts=_listed(result.prompt_logprobs),
        finish=completion.finish_reason,
    )


def _listed(positions: Sequence[Mapping[int, Any] | None] | None) -> Any:
    if positions is None:
        return None
    listed: list[Any] = []
    for entries in positions:
        if entries is None:
            listed.append(None)
            continue
        pairs = entries.items()
        listed.append([[int(token), float(entry.logprob), entry.rank] for token, entry in pairs])
    return listed


def hit(tokens: int, block: int) -> int:
    """Return how much of a prompt of ``tokens`` the cache can have.

    It has whole blocks, and never the last token.
    """
    return block * ((tokens - 1) // block)


def cost(way: str, context: int, continuation: int, block: int) -> int:
    """Count the input tokens to compute for K tokens after C of a context that the cache has.

    With h(C) for :func:`hit`: C - h(C) + K - 1 by trace, one more by rows, the sum of C + j -
    h(C + j) over all positions j by label ids, and C + K without the cache.
    """
    if way == PROMPTS:
        return context + continuation
    if way == PLACES:
        lengths = range(context, context + continuation)
        return sum(length - hit(length, block) for length in lengths)
    return context - hit(context, block) + continuation - (way == TRACE)


def way_of(span: Span, abilities: Abilities) -> str:
    """Return label ids for a span of one token, else the way that computes the fewest tokens.

    It looks at one span alone, so that the same span is always asked in the same way.
    """
    context = len(span.context)
    count = len(span.continuation)
    if count == 1 and PLACES in abilities.ways:
        return PLACES
    ways = abilities.ways
    # A span that is sent whole as a prompt needs room for a token that is generated after it.
    if context + count >= abilities.longest:
        ways = abilities.without((ROWS, PROMPTS)).ways
    return min(ways, key=lambda way: cost(way, context, count, abilities.block), default=PLACES)


def objection(question: Prompt, abilities: Abilities) -> str | None:
    """Return why ``question`` can't be asked, or None.

    Everything is checked before it is sent: vLLM cuts a trace that does not fit without a word.
    """
    if not isinstance(question, Span | Mass | Generation):
        return f"vLLM can't answer a {type(question).__name__}"
    tokens = question.context
    context = len(tokens)
    if not context:
        return "the prompt is empty, which vLLM refuses; use a protocol that begins with BOS or EOS"
    room = 1
    if isinstance(question, Generation):
        room = question.most
    elif isinstance(question, Span):
        room = len(question.continuation)
        tokens = np.concatenate([tokens, question.continuation])
    if isinstance(question, Span) and not room:
        return "the continuation has no token, so there is nothing to score"
    wrong = tokens[(tokens < 0) | (tokens >= abilities.vocabulary)]
    if len(wrong):
        return (
            f"token {wrong[0]} is not among the model's {abilities.vocabulary}; its tokenizer is "
            "another model's"
        )
    if isinstance(question, Mass):
        members = int(np.searchsorted(question.members.ids, abilities.vocabulary))
        if not 0 < members <= MOST_MEMBERS:
            return (
                f"the question needs the total probability of {members} tokens; vLLM gives "
                f"{MOST_MEMBERS} at most"
            )
    if context + room > abilities.longest:
        return (
            f"{context} tokens of context and {room} more exceed the {abilities.longest} that vLLM "
            "takes; use a wider window, or a protocol with a shorter prompt"
        )
    return None


_Ordered = tuple[bytes, Node | None, list[tuple[int, Span]]]
"""The context, by which all are sorted, and a node of label ids or equal spans."""


class EngineRoute(Route):
    """Ask about spans and masses in the cheapest way of ``abilities``.

    Requests come in the order of the token tree, all options of a context together: the first one
    fills the blocks of the cache that the next ones read.
    """

    supports = frozenset({Span, Mass})

    def __init__(self, abilities: Abilities, model: str = "") -> None:
        """Ask ``model``, by its name at a server, or the engine of this process."""
        super().__init__(model)
        self.abilities = abilities
        longer = [way for way in abilities.ways if way != PLACES] or [PLACES]
        self.name = f"vLLM, {longer[0]}"
        self.cost = abilities.cost_in_words(longer[0])

    def objection(self, question: Prompt) -> str | None:
        """Return why the engine can't be asked ``question`` (:func:`objection`), or None."""
        return objection(question, self.abilities)

    def parts(self, question: Prompt) -> int:
        """Return the number of tokens of a span by label ids, or of requests for a set."""
        if isinstance(question, Mass):
            return math.ceil(len(question.members.below(self.abilities.vocabulary)) / MOST_IDS)
        assert isinstance(question, Span)
        return len(question.continuation) if way_of(question, self.abilities) == PLACES else 1

    def calls(self, questions: Sequence[Numbered]) -> Iterator[Call]:
        """Yield the requests to a server, at :data:`SERVED_PATH`.

        It lists as many tokens of a position as are wanted, the forced one first: so one more is
        wanted, which is the likeliest.
        """
        for request in self.requests(questions):
            params = {**request.params, "logprobs": request.params["logprobs"] + 1}
            body = {"model": self._model, "token_ids": request.prompt, "sampling_params": params}
            yield Call(SERVED_PATH, body, request.parts, partial(_read_served, request))

    def requests(self, questions: Sequence[Numbered]) -> Iterator[EngineRequest]:
        """Yield a request for every prefix that is read by label ids, and for every other span."""
        labels: list[Numbered] = []
        spans = defaultdict[tuple[bytes, bytes], list[tuple[int, Span]]](list)
        for index, question in questions:
            if isinstance(question, Span) and way_of(question, self.abilities) != PLACES:
                key = (question.context.tobytes(), question.continuation.tobytes())
                spans[key].append((index, question))
            else:
                labels.append((index, question))
        # Both are in the order in which the tree has the contexts.
        by_labels: Iterator[_Ordered] = (
            (np.asarray(node.prefix, np.int32).tobytes(), node, []) for node in nodes(labels)
        )
        by_spans: Iterator[_Ordered] = ((key[0], None, spans[key]) for key in sorted(spans))
        for _, node, equal in merge(by_labels, by_spans, key=itemgetter(0)):
            if node is not None:
                for wanted in node.requests(MOST_IDS, self.abilities.vocabulary):
                    yield label_request(node.prefix, wanted.ids, wanted.parts, wanted.targets)
            else:
                yield self._whole([Part(index) for index, _ in equal], equal[0][1])

    def _whole(self, parts: list[Part], span: Span) -> EngineRequest:
        context = span.context.tolist()
        continuation = span.continuation.tolist()
        way = way_of(span, self.abilities)
        if way == TRACE:
            return trace_request(context, continuation, parts)
        if way == ROWS:
            return rows_request(context, continuation, parts)
        return prompt_request(context, continuation, parts)


class ByLength(Route):
    """Ask a server in the way ``chosen``, and about longer spans in the way ``whole`` if cheaper.

    Asked by next tokens, a span takes a request for each of its tokens, of whose prompts the cache
    has all but a block.  Asked whole it takes one.  By prompt log-probabilities (``way``) that is
    computed from the first token on, so they are taken if it is less by :func:`cost`; a way that
    reads the cache is always taken.  The rule looks at one span alone, so that the same span is
    always asked in the same way.  ``longest``: tokens that a prompt of ``whole`` may have.
    """

    def __init__(
        self, chosen: Route, whole: Route, longest: int | None = None, way: str = PROMPTS
    ) -> None:
        self._chosen = chosen
        self._whole = whole
        self._longest = math.inf if longest is None else longest
        self._way = way
        self.name = f"{chosen.name}, {whole.name} of long continuations"
        self.supports = chosen.supports
        self.cost = f"{chosen.cost}; of long continuations {whole.cost}"

    def ranking(self, longest: int) -> Route | None:
        """Return the way that gives ranks, if it takes prompts of ``longest`` tokens, or None."""
        return self._whole if longest <= self._longest and self._way != ROWS else None

    def objection(self, question: Prompt) -> str | None:
        """Return what the way for ``question`` objects, or None."""
        return self._of(question).objection(question)

    def parts(self, question: Prompt) -> int:
        """Return the number of parts that the way for ``question`` has."""
        return self._of(question).parts(question)

    def calls(self, questions: Sequence[Numbered]) -> Iterator[Call]:
        """Yield first the requests for next tokens, then those for whole spans."""
        for route in (self._chosen, self._whole):
            entries = [entry for entry in questions if self._of(entry[1]) is route]
            yield from route.calls(entries)

    def _of(self, question: Prompt) -> Route:
        if not isinstance(question, Span):
            return self._chosen
        context = len(question.context)
        count = len(question.continuation)
        if count == 1 or context + count > self._longest:
            return self._chosen
        if self._way != PROMPTS:
            return self._whole
        is_less = cost(PROMPTS, context, count, BLOCK) < cost(PLACES, context, count, BLOCK)
        return self._whole if is_less else self._chosen


class TextRoute(Route):
    """Generate; ``ends``: tokens that end a text, ``token_bytes``: the bytes of every token."""

    name = "vLLM, generated tokens"
    cost = "a request for every generation"
    supports = frozenset({Generation, Sampling})

    def __init__(self, ends: Collection[int], token_bytes: Sequence[bytes]) -> None:
        super().__init__("")
        self._ends = ends
        self._token_bytes = token_bytes

    def calls(self, questions: Sequence[Numbered]) -> Iterator[Call]:
        """Raise NotImplementedError: servers generate by their completions."""
        raise NotImplementedError

    def requests(self, questions: Sequence[Numbered]) -> Iterator[EngineRequest]:
        """Yield a request for every generation, those with a common beginning together."""
        for index, generation in generations(questions):
            yield generation_request(generation, self._ends, self._token_bytes, [Part(index)])


def label_request(
    prefix: list[int], ids: Sequence[int], parts: list[Part], targets: Sequence[Sequence[int]]
) -> EngineRequest:
    """Ask for ``ids`` after ``prefix``, of which every part has its targets.

    It is vLLM's ``logprob_token_ids``.
    """

    def read(output: Output) -> list[TokenScores]:
        (listed,) = _positions(output, len(prefix), 1)
        first = output.tokens[0]
        nats = {token: number(requested(listed, token, "vLLM")[0]) for token in (*ids, first)}
        scores = []
        for tokens in targets:
            values = [nats[token] for token in tokens]
            # The rank that vLLM gives a label is its position in the list.
            ranks = np.where(np.array(values) >= nats[first], 0, NOT_FIRST)
            scores.append(TokenScores.of(tokens, values, ranks))
        return scores

    params = {**_GREEDY, "max_tokens": 1, "logprob_token_ids": list(ids)}
    return EngineRequest(prefix, params, parts, read)


def trace_request(context: list[int], trace: list[int], parts: list[Part]) -> EngineRequest:
    """Force the tokens of ``trace`` in place of those that would be generated.

    It is vLLM's ``trace_decode_token_ids``.  With the likeliest token of every position, the rank
    of a token is 0 also if another one has the same log-probability; vLLM counts that one.
    """

    def read(output: Output) -> list[TokenScores]:
        if list(output.tokens) != trace:
            problem = f"{len(output.tokens)} tokens"
            for index, (token, forced) in enumerate(zip(output.tokens, trace, strict=False)):
                if token != forced:
                    problem = f"token {token} at position {index}"
                    break
            raise Unanswerable(
                f"vLLM answered with {problem}, not the {len(trace)} forced: it did not replay the "
                "trace"
            )
        if output.finish != "length":
            raise Unanswerable(f"vLLM ended a forced continuation early ({output.finish})")
        scores = _scores_of(trace, _positions(output, len(context), len(trace)))
        return [scores] * len(parts)

    params = {
        **_GREEDY,
        # 16 unless it is named, which cuts a longer trace.
        "max_tokens": len(trace),
        "logprobs": 1,
        "trace_decode_token_ids": trace,
    }
    return EngineRequest(context, params, parts, read)


def rows_request(
    context: list[int], continuation: list[int], parts: list[Part], cached: bool = True
) -> EngineRequest:
    """Ask for rows of the prompt alone; ``cached``: True if what precedes them may be read.

    It is vLLM's ``prompt_logprob_token_ids``.  If the cache has more than what precedes the rows,
    vLLM gives none, and the request is repeated without the cache.
    """

    def read(output: Output) -> list[TokenScores]:
        _check_prompt(output, len(context) + len(continuation))
        if output.rows is None:
            raise Unanswerable(
                "vLLM gave no prompt rows, though the request switched its cache off"
            )
        shape = [len(row) for row in output.rows]
        if shape != [1] * len(continuation):
            raise Unanswerable(
                f"vLLM gave {len(shape)} prompt rows of another shape than the {len(continuation)} "
                "requested"
            )
        nats = [number(row[0]) for row in output.rows]
        ranks = np.where(np.array(nats) > _HALF, 0, UNKNOWN)
        return [TokenScores.of(continuation, nats, ranks)] * len(parts)

    params = {
        **_GREEDY,
        "max_tokens": 1,
        "prompt_logprob_token_ids": [[token] for token in continuation],
        "prompt_logprob_start": len(context) - 1,
        "skip_reading_prefix_cache": not cached,
    }
    retry = rows_request(context, continuation, parts, cached=False) if cached else None
    return EngineRequest([*context, *continuation], params, parts, read, retry)


def prompt_request(context: list[int], continuation: list[int], parts: list[Part]) -> EngineRequest:
    """Ask for ``prompt_logprobs``.

    They are wrong or of other rows wherever the cache was read, which is forbidden and checked.
    """
    whole = [*context, *continuation]

    def read(output: Output) -> list[TokenScores]:
        _check_prompt(output, len(whole))
        if output.cached:
            raise Unanswerable(
                f"vLLM read {output.cached} tokens of a prompt from its cache, so their rows are "
                "missing"
            )
        positions = output.prompts or []
        if len(positions) != len(whole):
            raise Unanswerable(
                f"vLLM gave log-probabilities of {len(positions)} prompt tokens, but {len(whole)} "
                "were sent"
            )
        scores = _scores_of(continuation, list(map(_by_id, positions[len(context) :])))
        return [scores] * len(parts)

    params = {**_GREEDY, "max_tokens": 1, "prompt_logprobs": 1, "skip_reading_prefix_cache": True}
    return EngineRequest(whole, params, parts, read)


def generation_request(
    generation: Generation, ends: Collection[int], token_bytes: Sequence[bytes], parts: list[Part]
) -> EngineRequest:
    """Generate, greedily or sampled, up to one of ``ends`` or a stop.

    Stops are texts to vLLM, which ends with the token that completes one, so that the text is cut
    here once more; if a thought may come first, none is named.
    """

    def read(output: Output) -> list[TokenScores]:
        tokens = list(output.tokens)
        if len(tokens) > generation.most:
            raise Unanswerable(
                f"vLLM generated {len(tokens)} tokens, over the limit of {generation.most}"
            )
        if output.finish not in ("stop", "length"):
            raise Unanswerable(f"vLLM ended the text early ({output.finish})")
        scores = _scores_of(tokens, _positions(output, len(generation.context), len(tokens)))
        scores = scores.first(generation.before_stop(tokens, token_bytes))
        count = len(scores.tokens)
        # A sampled text ends before the token that ends it.
        if generation.sampling is not None and count and int(scores.tokens[-1]) in ends:
            scores = scores.first(count - 1)
        finish = generation.finish(scores.tokens.tolist(), token_bytes, ends)
        return [replace(scores, ended=Ended(finish))] * len(parts)

    stops = text_stops(generation)
    params: JSON = {
        "temperature": 0.0,
        "max_tokens": generation.most,
        "logprobs": 1,
        "ignore_eos": True,
        "stop_token_ids": sorted(ends),
        "stop": stops,
        "detokenize": bool(stops),
    }
    if generation.sampling is not None:
        params |= {"temperature": 1.0, "seed": seed(generation.sampling)}
    return EngineRequest(generation.context.tolist(), params, parts, read)


def _read_served(request: EngineRequest, answer: JSON) -> list[TokenScores]:
    """Return the scores in the answer of a server; its stand-ins for numbers are refused."""
    completion = choice(answer)
    content = member(completion, "logprobs", "content")
    if not isinstance(content, list):
        raise Unanswerable("the server sent no log-probabilities of what it generated")
    positions = []
    for position in content:
        others = member(position, "top_logprobs")
        if not isinstance(others, list):
            others = []
        listed = []
        for entry in (position, *others):
            names = ("token_id", "logprob", "rank")
            listed.append([member(entry, name) for name in names])
        if len({token for token, _, _ in listed}) < _LISTED:
            raise Unanswerable("the server lists only the forced token, so its rank is unknown")
        positions.append(listed)
    sent = member(answer, "usage", "prompt_tokens")
    # Usage is an option of servers.
    if not isinstance(sent, int):
        sent = len(request.prompt)
    output = Output(
        prompt=sent,
        cached=member(answer, "usage", "prompt_tokens_details", "cached_tokens"),
        tokens=field(completion, "token_ids", list),
        logprobs=positions,
        finish=completion.get("finish_reason"),
    )
    return request.read(output)


def _check_prompt(output: Output, tokens: int) -> None:
    if output.prompt != tokens:
        raise Unanswerable(f"vLLM read {output.prompt} tokens, but {tokens} were sent")


def _by_id(entries: Any) -> dict[int, tuple[Any, Any]]:
    """Return id → (nats, rank from 1) of a position: the order of the list has no meaning."""
    return {token: (nats, rank) for token, nats, rank in entries or ()}


def _positions(output: Output, prompt: int, count: int) -> list[dict[int, tuple[Any, Any]]]:
    """Return what is listed for ``count`` generated tokens; Unanswerable for another number."""
    _check_prompt(output, prompt)
    positions = output.logprobs or []
    if len(positions) != count or len(output.tokens) != count:
        raise Unanswerable(
            f"vLLM gave log-probabilities at {len(positions)} positions of {len(output.tokens)} "
            f"tokens, not {count}"
        )
    return list(map(_by_id, positions))


def _scores_of(
    tokens: Sequence[int], positions: Sequence[Mapping[int, tuple[Any, Any]]]
) -> TokenScores:
    """Return the scores of ``tokens`` at their positions, which also list the likeliest one."""
    logprobs = []
    ranks = []
    for token, listed in zip(tokens, positions, strict=True):
        value, rank = requested(listed, token, "vLLM")
        logprob = number(value)
        rank = rank_from_one(rank, token, engine="vLLM") - 1
        # vLLM counts tokens that are no less likely, so that two equal ones would both have rank 1.
        if logprob >= max(number(nats) for nats, _ in listed.values()):
            rank = 0
        logprobs.append(logprob)
        ranks.append(rank)
    return TokenScores.of(tokens, logprobs, ranks)
