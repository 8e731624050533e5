"""Tokens that share their names: numbers of the wrong row are refused all the same, and true ones are not. The servers
are simulated below HTTP: tokenizers of characters, words and byte pieces, named as servers name them."""

import json
import re
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import httpx2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.extensions.endpoints.server.address import ServerAddress
from choicewise.extensions.endpoints.server.http import Client
from choicewise.extensions.endpoints.server.many_requests import ask_now
from choicewise.extensions.endpoints.server.next_token_routes import TopTokens
from choicewise.extensions.endpoints.server.probe import ChosenRoutes, Probe, ServerFacts
from choicewise.extensions.endpoints.server.routes import TextPrompts
from choicewise.questions import Ids, Span

pytestmark = pytest.mark.usefixtures("no_pauses")

CHARACTERS = tuple(chr(code).encode() for code in (9, 10, *range(32, 127)))
SPACED = "Paris Madrid Spain France capital the of is and What The Who which river castle green seven they a I Rome"
SPACED += " Lisbon Berlin city large small it was has in at"
WORDS = (
    *(f" {word}".encode() for word in SPACED.split()),
    b"Question",
    b"Answer",
    b"\n\n",
    b"ing",
    b"ed",
    b"ion",
)
BYTES = tuple(bytes([byte]) for byte in range(256))


@dataclass(frozen=True)
class Pieces:
    """A tokenizer of ``pieces`` (the longest that fits is taken) and of ``pieces_of_bytes`` for all other bytes."""

    pieces: tuple[bytes, ...] = (*CHARACTERS, *WORDS)
    pieces_of_bytes: tuple[bytes, ...] = BYTES
    bos_id = eos_id = unknown_id = mask_id = chat = None
    digest = "1" * 64

    @cached_property
    def token_bytes(self) -> list[bytes]:
        return [*self.pieces, *self.pieces_of_bytes]

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        return {piece: token for token, piece in reversed([*enumerate(self.token_bytes)])}

    def encode(self, texts: list[str], *, special: bool) -> list[Ids]:
        return [np.asarray(self._encoded(text.encode()), dtype=np.int32) for text in texts]

    @cached_property
    def _pattern(self) -> re.Pattern[bytes]:
        return re.compile(
            b"|".join(map(re.escape, sorted(self._ids, key=len, reverse=True))), re.DOTALL
        )

    def _encoded(self, text: bytes) -> list[int]:
        return [self._ids[piece] for piece in self._pattern.findall(text)]

    def decode(self, ids: Ids) -> str:
        return b"".join(self.token_bytes[token] for token in ids).decode(errors="replace")


@lru_cache(maxsize=4096)
def log_softmax(scale: float, size: int, *seeds: int) -> tuple[np.ndarray, list[int]]:
    """Numbers drawn from ``seeds``, and their places from the largest on."""
    logits = np.random.default_rng(seeds).normal(size=size) * scale
    row = logits - np.logaddexp.reduce(logits)
    return row, np.argsort(-row).tolist()


@dataclass(frozen=True)
class Simulated:
    """A server with ``tokenizer``, an echo, and at most ``top`` next tokens. ``names``: how it names tokens; ``late``:
    log-probabilities of the echo are of the row one too late; ``scale``: how far logits are apart."""

    tokenizer: Pieces = Pieces()
    names: str = "decoded"
    late: bool = False
    top: int = 100
    seed: int = 0
    scale: float = 3.0

    def ranked(self, context: list[int]) -> tuple[np.ndarray, list[int]]:
        """Log-probabilities of what follows ``context``, and the tokens from the likeliest on."""
        return log_softmax(self.scale, len(self.tokenizer.token_bytes), self.seed, *context)

    @cached_property
    def named(self) -> list[str]:
        return [*map(self.name, range(len(self.tokenizer.token_bytes)))]

    def name(self, token: int) -> str:
        spelled = self.tokenizer.token_bytes[token]
        match self.names:
            case "of bytes" if token >= len(self.tokenizer.pieces):
                return f"<0x{spelled[0]:02X}>"
            case "without what is no text":
                return spelled.decode(errors="ignore")
            case "without spaces":
                return spelled.decode(errors="replace").removeprefix(" ")
            case "of the vocabulary":
                return spelled.decode(errors="replace").replace(" ", "▁")
        return spelled.decode(errors="replace")

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        if not request.url.path.endswith("/v1/completions"):
            return httpx2.Response(404, json={})
        if not isinstance(body["prompt"], str) or (body.get("logprobs") or 0) > self.top:
            return httpx2.Response(400, json={"error": {"message": "not taken"}})
        sent = self.tokenizer.encode([body["prompt"]], special=False)[0].tolist()
        tokens = list(sent)
        for _ in range(body["max_tokens"]):
            tokens.append(self.ranked(tokens)[1][0])
        first = 0 if body.get("echo") else len(sent)
        text = self.tokenizer.decode(np.asarray(tokens[first:]))
        choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": "length"}
        if body.get("logprobs"):
            choice["logprobs"] = self._arrays(tokens, first, len(sent), body["logprobs"])
        return httpx2.Response(
            200, json={"choices": [choice], "usage": {"prompt_tokens": len(sent)}}
        )

    def _arrays(self, tokens: list[int], first: int, sent: int, top: int) -> dict[str, Any]:
        names, numbers, tops = list[str](), list[float | None](), list[dict[str, float] | None]()
        for place in range(first, len(tokens)):
            names.append(self.named[tokens[place]])
            if place == 0:
                numbers.append(None)
                tops.append(None)
                continue
            row, order = self.ranked(tokens[: place + (self.late and place < sent)])
            numbers.append(float(row[tokens[place]]))
            tops.append(
                {self.named[token]: float(row[token]) for token in [*order[:top], tokens[place]]}
            )
        return {"tokens": names, "token_logprobs": numbers, "top_logprobs": tops}


def probed(server: Simulated) -> tuple[Client, ChosenRoutes, str | None]:
    """The ways that are taken, and why the echo is not."""
    address = ServerAddress.parse("server:http://127.0.0.1:9/v1#pieces")
    client = Client(address, patience=2.0, transport=httpx2.MockTransport(server.answer))
    chosen = Probe(client, ServerFacts("pieces"), server.tokenizer, "pieces").chosen_routes(
        completions=True
    )
    echoes = [trial.refused for trial in chosen.check.trials if trial.rung.startswith("echo")]
    return client, chosen, echoes[-1] if echoes else "no echo was tried"


SHARING = Pieces()  # as SentencePiece has it: every character is a byte piece, too

HIGH = Pieces(
    pieces_of_bytes=BYTES[128:]
)  # half of the bytes, all with the replacement character for a name

UNNAMED = Pieces(pieces=(*CHARACTERS, *WORDS, "\ufffd".encode()), pieces_of_bytes=BYTES[128:])
"""One token is the replacement character itself."""

TWINS = Pieces((*CHARACTERS, *WORDS, *(word[1:] for word in WORDS if len(word) < 7)), BYTES[128:])
"""Some words are tokens with a space in front and without it."""


@pytest.mark.parametrize("names", ["decoded", "of bytes", "without what is no text"])
@pytest.mark.parametrize(
    "tokenizer", [SHARING, HIGH, UNNAMED], ids=["bytes and characters", "high bytes", "U+FFFD"]
)
@pytest.mark.parametrize("top", [5, 100])
def test_an_honest_echo_is_taken_and_a_late_one_refused(
    tokenizer: Pieces, names: str, top: int
) -> None:
    server = Simulated(tokenizer, names, top=top)
    client, chosen, refused = probed(server)
    assert (chosen.score and chosen.score.name, refused) == ("echo, prompts as texts", None)
    context, after = tokenizer.encode(["Where is it? In", " the castle of Madrid."], special=False)
    answer = ask_now(client, chosen.score, Span(context, after))
    tokens = [*context.tolist(), *after.tolist()]
    true = [
        server.ranked(tokens[:place])[0][tokens[place]]
        for place in range(len(context), len(tokens))
    ]
    np.testing.assert_allclose(answer.logprobs, true, rtol=1e-5)
    for seed in range(3):
        _, chosen, refused = probed(replace(server, late=True, seed=seed))
        assert chosen.score is None or not chosen.score.name.startswith("echo")
        assert "other tokens" in str(refused)


@pytest.mark.costly("twenty servers that are probed")
@settings(max_examples=10, deadline=None)
@given(
    characters=st.sets(st.sampled_from(WORDS), max_size=20),
    shared=st.integers(128, 256),
    names=st.sampled_from(
        ["decoded", "of bytes", "without what is no text", "without spaces", "of the vocabulary"]
    ),
    top=st.sampled_from([1, 5, 20, 100]),
    seed=st.integers(0, 2**32),
    scale=st.sampled_from([1.0, 3.0, 30.0]),
)
def test_late_echoes_are_left(
    characters: set[bytes], shared: int, names: str, top: int, seed: int, scale: float
) -> None:
    """Nor is an honest one called late."""
    tokenizer = Pieces((*CHARACTERS, *sorted(characters)), BYTES[256 - shared :])
    honest = Simulated(tokenizer, names, False, top, seed, scale)
    _, chosen, refused = probed(replace(honest, late=True))
    assert refused, chosen.routes
    _, chosen, refused = probed(honest)
    assert "other tokens: they are" not in (refused or "")


def test_a_token_that_may_be_named_without_its_space_is_not_taken_for_another() -> None:
    """Neither the likeliest next token nor those that it generates say whether the server leaves out the space."""
    tokenizer = Pieces((*CHARACTERS, b" I", b" is", b" Paris"), BYTES[128:])
    client, chosen, refused = probed(
        Simulated(tokenizer, "without spaces", top=1, seed=464, scale=1.0)
    )
    assert (chosen.score and chosen.score.name, refused) == ("echo, prompts as texts", None)
    check = Probe(client, ServerFacts("pieces"), tokenizer, "pieces")
    top = TopTokens("pieces", tokenizer, TextPrompts(tokenizer, ()), 1)
    context = check.context(top.prompts)
    assert context is not None
    assert check.is_spaceless(top, context) is None
    top = TopTokens("pieces", tokenizer, TextPrompts(tokenizer, ()), 1, spaceless=None)
    for text, known in ((" I", False), ("I", False), (" Paris", True), ("a", True)):
        objection = top.objection(Span(context, tokenizer.encode([text], special=False)[0]))
        assert (objection is None) is known, text
        assert known or "without the space" in objection
    (paris,) = tokenizer.encode([" Paris"], special=False)[0].tolist()
    assert top.scores(paris, {b"Paris": -1.0}).logprobs.tolist() == [-1.0]
    assert top.scores(paris, {b" Paris": -2.0}).logprobs.tolist() == [-2.0]


def test_next_tokens_that_are_alike_not_listed_or_named_as_in_the_vocabulary_are_refused_with_the_reason() -> (
    None
):
    tokenizer = Pieces(pieces=CHARACTERS, pieces_of_bytes=(*CHARACTERS, *BYTES[128:]))
    _, chosen, refused = probed(Simulated(tokenizer))
    assert chosen.score is not None
    assert str(refused).startswith("only 0 of its log-probabilities can be checked")
    assert "share their texts" in str(refused)
    _, chosen, refused = probed(Simulated(top=0))
    assert chosen.score is None
    assert refused
    _, chosen, _ = probed(Simulated(HIGH, "of the vocabulary"))
    assert chosen.score is None
    assert any(
        "spelling in the vocabulary ('▁" in str(trial.refused) for trial in chosen.check.trials
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("late", [False, True])
def test_tokens_named_without_their_space_are_identified_where_no_other_is_named_so(
    late: bool, seed: int
) -> None:
    _, chosen, refused = probed(Simulated(TWINS, "without spaces", late, seed=seed))
    if late:
        assert "other tokens" in str(refused)
        assert chosen.score is not None
        (lisbon,), *shared = TWINS.encode([" Lisbon", "Paris", " Paris", "a", " a"], special=False)
        context = TWINS.encode(["The answer is"], special=False)[0]
        assert chosen.score.objection(Span(context, np.asarray([lisbon]))) is None
        for (token,) in shared:
            objection = str(chosen.score.objection(Span(context, np.asarray([token]))))
            assert "without the space" in objection
    else:
        assert (chosen.score and chosen.score.name, refused) == ("echo, prompts as texts", None)
