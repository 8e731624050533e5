"""What an honest server answers, from true numbers that a test can compute itself. The wire format is that of the
servers of vLLM 0.32 (``entrypoints/openai/completion``, ``chat_completion``, ``serve/tokenize``) and of
llama-cpp-python 0.3 (``llama.py`` ``_create_completion``, ``server/app.py``), read from their sources; :class:`Ability`
says where they differ."""

import hashlib
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

JSON = dict[str, Any]
BOS, TOKENS = (
    256,
    257,
)  # the tokens are bytes and a BOS, as in ``choicewise.tokens.tokenizer.ByteTokenizer``


class Refused(Exception):
    """The request is refused with a ``status`` and an error's ``body``."""

    def __init__(self, status: int, body: JSON) -> None:
        super().__init__(status)
        self.status, self.body = status, body


@dataclass(frozen=True)
class Ability:
    """What a server can do.

    ``echo``: log-probabilities of an echoed prompt.  ``shifted``: those are of the row one too late, as from
    llama-cpp-python without a BOS.  ``prompt_logprobs``, ``token_choice`` (``logprob_token_ids``), ``token_names``
    (``return_tokens_as_token_ids``, ``return_token_ids``), ``token_prompts`` (ids for a prompt): vLLM's.  ``top``: the
    most ``logprobs``.  ``bos``: texts get a BOS.  ``bos_always``: everything does, so that it is there twice.
    ``window``: tokens of prompt and answer.  ``thought``: the name under which a message has all but the last three
    characters of what is generated in a chat, as a thought; those and no more are its content, or null where the
    text was cut.
    """

    name: str = "vllm"
    completions: bool = True
    chat: bool = True
    chat_logprobs: bool = True
    tokenize: bool = True
    echo: bool = True
    shifted: bool = False
    prompt_logprobs: bool = True
    token_choice: bool = True
    token_names: bool = True
    token_prompts: bool = True
    top: int = 20
    bos: bool = True
    bos_always: bool = False
    window: int = 4096
    checks_model: bool = True
    thought: str = ""


VLLM = Ability()
LACKING = (
    "prompt_logprobs",
    "token_choice",
    "token_names",
    "token_prompts",
    "tokenize",
    "checks_model",
)
LLAMA_CPP = Ability(name="llama-cpp-python", top=10_000, **dict.fromkeys(LACKING, False))
LLAMA_CPP_WITHOUT_BOS = replace(LLAMA_CPP, bos=False, shifted=True)
TOP_ONLY = replace(LLAMA_CPP, name="no echo", echo=False, top=5, checks_model=True)
"""Log-probabilities of generated tokens alone, five at most, as hosted services give."""
CHAT_ONLY = replace(
    TOP_ONLY, name="chat without log-probabilities", completions=False, chat_logprobs=False
)


def log_probabilities(context: Sequence[int], seed: int = 0) -> list[float]:
    """What follows ``context`` at the fake ``fake:hash``, token by token (nats); a reference of its own."""
    return _row(
        seed.to_bytes(8, "little", signed=True) + bytes(token for token in context if token < BOS)
    )


@lru_cache(maxsize=2048)
def _row(text: bytes) -> list[float]:
    digest = hashlib.shake_256(text).digest(2 * TOKENS)
    weights = [
        (1 + int.from_bytes(digest[2 * token : 2 * token + 2], "little")) ** 2
        for token in range(TOKENS)
    ]
    total = math.log(sum(weights))
    return [math.log(weight) - total for weight in weights]


def spelled(token: int) -> str:
    """What a server decodes one token to; several bytes that are no characters look the same."""
    return "<s>" if token == BOS else bytes([token]).decode(errors="replace")


def text_of(tokens: Sequence[int]) -> str:
    return bytes(token for token in tokens if token < BOS).decode(errors="replace")


class ServedModel:
    """The model ``name`` with the numbers of ``seed``; ``noise``: how far numbers differ from request to request.

    ``script``: what it writes after a prompt, where that is not what its numbers make likely."""

    def __init__(self, name: str, ability: Ability, seed: int = 0, noise: float = 0.0) -> None:
        self.name, self.ability, self.seed, self.noise = name, ability, seed, noise
        self.script: Callable[[str], str] | None = None
        self._random = random.Random(0)

    def answer(self, method: str, path: str, body: JSON) -> JSON:
        """The answer to one request; raises Refused."""
        can = self.ability
        match method, path:
            case "GET", "/v1/models":
                return {"object": "list", "data": [self._card()]}
            case "GET", "/version" if can.name == "vllm":
                return {"version": "0.32.0"}
            case "POST", "/v1/completions" if can.completions:
                return self._completions(body)
            case "POST", "/v1/chat/completions" if can.chat:
                return self._chat(body)
            case "POST", "/tokenize" if can.tokenize:
                return self._tokenize(body)
            case "POST", "/detokenize" if can.tokenize:
                return {"prompt": text_of(body["tokens"])}
            case "POST", "/extras/tokenize" if can.name == "llama-cpp-python":
                return {"tokens": self.tokens(body["input"])}
        raise Refused(404, {"detail": "Not Found"})

    def tokens(self, prompt: str | Sequence[int], special: bool = True) -> list[int]:
        """The tokens that the model reads for ``prompt``."""
        can = self.ability
        if isinstance(prompt, str):
            return [BOS] * ((can.bos and special) + can.bos_always) + [
                *prompt.encode(errors="replace")
            ]
        if not can.token_prompts:
            raise Refused(
                500,
                _error("'list' object has no attribute 'encode'", "internal_server_error", None),
            )
        return [BOS] * can.bos_always + [*prompt]

    def _card(self) -> JSON:
        card: JSON = {"id": self.name, "object": "model", "owned_by": self.ability.name}
        if self.ability.name == "vllm":
            card |= {
                "created": 1,
                "root": f"/models/{self.name}",
                "parent": None,
                "max_model_len": self.ability.window,
            }
        return card

    def _tokenize(self, body: JSON) -> JSON:
        self._check_model(body)
        text = body["prompt"] if "prompt" in body else _conversation(body["messages"])
        tokens = self.tokens(text, body.get("add_special_tokens", "prompt" in body))
        strings = [*map(spelled, tokens)] if body.get("return_token_strs") else None
        answer = {"count": len(tokens), "max_model_len": self.ability.window, "tokens": tokens}
        return {**answer, "token_strs": strings}

    def _check_model(self, body: JSON) -> None:
        if self.ability.checks_model and body.get("model") not in (None, self.name):
            raise Refused(
                404, _error(f"The model `{body['model']}` does not exist.", "NotFoundError", 404)
            )

    def _completions(self, body: JSON) -> JSON:
        self._check_model(body)
        can = self.ability
        prompt = body.get("prompt")
        if prompt in (None, ""):
            raise _bad("Either prompt or prompt_embeds must be provided.")
        if body.get("logprobs") is not None and body["logprobs"] > can.top:
            message = f"Requested sample logprobs of {body['logprobs']}, which is greater than max allowed: {can.top}"
            raise _bad(message)
        chosen = body.get("logprob_token_ids") if can.token_choice else None
        if chosen is not None and (
            body.get("logprobs") is None or (body.get("echo") and body.get("max_tokens") == 0)
        ):
            raise _bad("`logprob_token_ids` needs `logprobs` to be set.")
        several = isinstance(prompt, list) and not all(isinstance(token, int) for token in prompt)
        if several and not can.token_prompts and len(prompt) > 1:
            raise Refused(500, _error("", "internal_server_error", None))  # it asserts
        choices, used, made = list[JSON](), 0, 0
        for one in prompt if several else [prompt]:
            tokens = self.tokens(one, body.get("add_special_tokens", True))
            for number in range(body.get("n") or 1):
                choice, generated = self._choice(tokens, body, number, chosen)
                choices.append({"index": len(choices), **choice})
                made += generated
            used += len(tokens)
        return self._answer("text_completion", choices, used, made)

    def _answer(self, kind: str, choices: list[JSON], used: int, made: int) -> JSON:
        usage = {"prompt_tokens": used, "completion_tokens": made, "total_tokens": used + made}
        return {
            "id": "cmpl-1",
            "object": kind,
            "created": 1,
            "model": self.name,
            "choices": choices,
            "usage": usage,
        }

    def _choice(
        self, tokens: list[int], body: JSON, number: int, chosen: list[int] | None
    ) -> tuple[JSON, int]:
        can = self.ability
        asked = 16 if body.get("max_tokens") is None else body["max_tokens"]
        if asked == 0 and can.name == "llama-cpp-python":
            asked = min(
                can.window - len(tokens), 64
            )  # it goes on to the end of its window; here not as far
        if asked == 0 and not body.get("echo"):
            raise _bad("max_tokens must be at least 1, got 0.")
        if len(tokens) + asked > can.window:
            message = f"This model's maximum context length is {can.window} tokens. However, you requested {asked}"
            message += f" output tokens and your prompt contains {len(tokens)} input tokens. Please reduce the length"
            raise _bad(message)
        generated, reason = self._generated(tokens, asked, body, number)
        rows: list[list[float] | None] = [
            self._row(tokens + generated[:place]) for place in range(len(generated))
        ]
        shown, text = generated, text_of(generated)
        for stop in [*_several(body.get("stop"))]:
            text = text.partition(stop)[0]
        prompt_rows = (
            self._prompt_rows(tokens)
            if body.get("echo") or body.get("prompt_logprobs") is not None
            else []
        )
        if body.get("echo"):
            if can.shifted or can.echo:
                rows = prompt_rows + rows
            shown, text = tokens + generated, text_of(tokens) + text
            if can.name == "llama-cpp-python" and tokens[0] == BOS:
                shown, rows = shown[1:], [None, *rows[2:]]
            if not can.echo:
                shown, rows = generated, rows[-len(generated) :]
        choice: JSON = {"text": text, "finish_reason": reason, "logprobs": None}
        if can.name == "vllm":
            choice |= {
                "stop_reason": None,
                "prompt_logprobs": None,
                "prompt_token_ids": None,
                "token_ids": None,
            }
        if body.get("logprobs") is not None:
            as_ids = bool(body.get("return_tokens_as_token_ids")) and can.token_names
            choice["logprobs"] = _arrays(shown, rows, body["logprobs"], chosen, as_ids, can)
        if body.get("prompt_logprobs") is not None and can.prompt_logprobs:
            pairs = zip(tokens, prompt_rows, strict=True)
            choice["prompt_logprobs"] = [
                _ranked(token, row, body["prompt_logprobs"]) for token, row in pairs
            ]
        if body.get("return_token_ids") and can.token_names:
            choice |= {"prompt_token_ids": tokens, "token_ids": generated}
        return choice, len(generated)

    def _prompt_rows(self, tokens: list[int]) -> list[list[float] | None]:
        late = int(self.ability.shifted)
        return [None, *(self._row(tokens[: place + late]) for place in range(1, len(tokens)))]

    def _row(self, context: Sequence[int]) -> list[float]:
        row = log_probabilities(context, self.seed)
        return (
            [each + self._random.uniform(-self.noise, self.noise) for each in row]
            if self.noise
            else row
        )

    def _generated(
        self, tokens: list[int], limit: int, body: JSON, number: int
    ) -> tuple[list[int], str]:
        cold = body.get("temperature") == 0
        seed = body.get("seed")
        chance = self._random if seed is None else random.Random(f"{seed}|{number}|{tokens}")
        stops = [stop.encode() for stop in _several(body.get("stop"))]
        if self.script is not None:
            written = list(self.script(text_of(tokens)).encode())
            return written[:limit], "stop" if len(written) <= limit else "length"
        generated = list[int]()
        while len(generated) < limit:
            row = log_probabilities(tokens + generated, self.seed)
            weights = [math.exp(each) for each in row]
            generated.append(
                row.index(max(row)) if cold else chance.choices(range(TOKENS), weights)[0]
            )
            if any(stop in bytes(token for token in generated if token < BOS) for stop in stops):
                return generated, "stop"
        return generated, "length"

    def _chat(self, body: JSON) -> JSON:
        self._check_model(body)
        can = self.ability
        top = body.get("top_logprobs") or 0
        if top > can.top:
            raise _bad(f"top_logprobs must be at most {can.top}")
        tokens = self.tokens(
            _conversation(body["messages"]), can.bos and isinstance(body["messages"], list)
        )
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or 16
        if len(tokens) + limit > can.window:
            raise _bad("This model's maximum context length is exceeded")
        choices, made = list[JSON](), 0
        for number in range(body.get("n") or 1):
            generated, reason = self._generated(tokens, limit, body, number)
            text = text_of(generated)
            for stop in _several(body.get("stop")):
                text = text.partition(stop)[0]
            rows = [self._row(tokens + generated[:place]) for place in range(len(generated))]
            content = [
                _chat_token(token, row, top) for token, row in zip(generated, rows, strict=True)
            ]
            shown = {"content": content} if body.get("logprobs") and can.chat_logprobs else None
            message = {"role": "assistant", "content": text}
            if can.thought:
                shown = None if reason == "length" else text[-3:]
                message = {
                    "role": "assistant",
                    "content": shown,
                    can.thought: text if shown is None else text[:-3],
                }
            choices.append(
                {"index": number, "message": message, "logprobs": shown, "finish_reason": reason}
            )
            made += len(generated)
        return self._answer("chat.completion", choices, len(tokens), made)


def _conversation(messages: list[Mapping[str, str]]) -> str:
    return "".join(f"<|{each['role']}|>{each['content']}\n" for each in messages) + "<|assistant|>"


def _several(stop: str | list[str] | None) -> list[str]:
    return [stop] if isinstance(stop, str) else stop or []


def _best(row: list[float], count: int) -> list[int]:
    return sorted(range(TOKENS), key=row.__getitem__, reverse=True)[
        : TOKENS if count < 0 else count
    ]


def _arrays(
    tokens: list[int],
    rows: list[list[float] | None],
    top: int,
    chosen: list[int] | None,
    as_ids: bool,
    can: Ability,
) -> JSON:
    """``logprobs`` of a choice of completions.  The dictionaries have texts for keys, so that some collide."""
    names = [f"token_id:{token}" if as_ids else spelled(token) for token in range(TOKENS)]
    numbers, tops = list[float | None](), list[dict[str, float] | None]()
    for token, row in zip(tokens, rows, strict=True):
        numbers.append(None if row is None else row[token])
        if row is None:
            tops.append(None)
            continue
        best = chosen if chosen is not None else _best(row, top)
        order = [*best, token] if can.name == "llama-cpp-python" else [token, *best]
        tops.append({names[each]: row[each] for each in order})
    shown = [names[token] for token in tokens]
    offsets = [sum(map(len, shown[:place])) for place in range(len(shown))]
    return {
        "tokens": shown,
        "token_logprobs": numbers,
        "top_logprobs": tops,
        "text_offset": offsets,
    }


def _ranked(token: int, row: list[float] | None, top: int) -> JSON | None:
    """``prompt_logprobs`` of one token: by id, the token itself first, ranks from 1."""
    if row is None:
        return None
    order = _best(row, -1)
    shown = dict.fromkeys([token, *order[: TOKENS if top < 0 else top]])
    numbers = {each: {"logprob": row[each], "rank": order.index(each) + 1} for each in shown}
    return {str(each): {**about, "decoded_token": spelled(each)} for each, about in numbers.items()}


def _chat_token(token: int, row: list[float], top: int) -> JSON:
    def one(each: int) -> JSON:
        return {"token": spelled(each), "logprob": row[each], "bytes": [*spelled(each).encode()]}

    return {**one(token), "top_logprobs": [one(each) for each in _best(row, top)]}


def _error(message: str, kind: str, code: int | None) -> JSON:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _bad(message: str) -> Refused:
    return Refused(400, _error(message, "BadRequestError", 400))


def as_json(answer: JSON) -> bytes:
    """Python's JSON, in which NaN and Infinity may stand."""
    return json.dumps(answer).encode()
