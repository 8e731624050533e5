"""Every reading, as it is run, against a few plain lines on a real model and on what the fakes must say."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from choicewise import evaluate
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import ProtocolError
from choicewise.models.fake import HashModel
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.readings import READINGS
from choicewise.questions import Cosine, Generation, Span, TokenScores
from choicewise.requests.ask import add_requests
from choicewise.requests.render import render
from choicewise.requests.request import PreparedBlock
from choicewise.results.run import Run
from choicewise.running.plan import unique_tokens
from choicewise.running.work import observe
from tests.helpers import answers
from tests.helpers.protocols import mmlu_protocol
from tests.helpers.tiny_models import real_model
from tests.paths import SHARED

ITEMS = (
    Item("1", "What did Lily see in the park?", ("a big red ball", "a dog", "your mom and dad"), (1,)),
    Item("2", "Where do birds live?", ("in a tree", "in the sea", "under a bed", "in a tree house"), (0, 3)),
    Item("3", "Tim was sad. Why?", ("He lost his toy.", "He found a toy."), (0,)),
)
QUIZ = Dataset("quiz", {"test": ITEMS})


def turned(item: Item) -> Item:
    """With its options in reverse order."""
    last = len(item.choices) - 1
    return replace(item, choices=item.choices[::-1], gold=tuple(sorted(last - index for index in item.gold)))


@cache
def reference() -> Any:
    """The same weights in plain transformers."""
    return transformers.AutoModelForCausalLM.from_pretrained(SHARED / "models" / "stories260K", dtype=torch.float32)


def ids(text: str) -> list[int]:
    return real_model().tokenizer.encode([text], special=True)[0].tolist()


def logprobs(tokens: list[int], forbidden: int | None = None) -> Any:
    """log P of every token but the first, after those before it."""
    with torch.no_grad():
        logits = reference()(torch.tensor([tokens])).logits[0, :-1].double()
    if forbidden is not None:
        logits[:, forbidden] = -torch.inf
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0].numpy()


def after(context: str, continuation: str) -> float:
    """log P of the tokens of the two texts as one, from as many as the context has alone."""
    start = len(ids(context))
    return float(logprobs(ids(context + continuation))[start - 1 :].sum())


def run(name: str, out: Path, model: Any = None, data: Dataset = QUIZ) -> Run:
    return evaluate(model=model or real_model(), data=data, protocols=[name], out=out)


def scores(found: Run) -> dict[tuple[str, int], float]:
    return {(row["item"], row["choice"]): row["score"] for row in found.scores().to_pylist()}


def forward(item: Item, choice: str) -> float:
    return after(f"Question: {item.question}\nAnswer:", f' "{choice}"')


def mean_forward(item: Item, choice: str) -> float:
    context = f"Question: {item.question}\nAnswer:"
    return forward(item, choice) / (len(ids(f'{context} "{choice}"')) - len(ids(context)))


def package(item: Item, choice: str) -> float:
    text = f'Question: {item.question}\nAnswer: "{choice}"'
    tokens, bos, eos = ids(text), real_model().tokenizer.bos_id, real_model().tokenizer.eos_id
    start = len(ids(f"Question: {item.question}\nAnswer:"))
    return float(logprobs([bos, *tokens], forbidden=eos)[start:].sum()) / len(f'"{choice}"')


def spelled(item: Item, choice: str) -> float:
    letter = "ABCD"[item.choices.index(choice)]
    lines = "".join(f"{label}. {choice}\n" for label, choice in zip("ABCD", item.choices, strict=False))
    context = f"Question: {item.question}\n{lines}Answer:"
    start = ids(context)
    texts = {tuple(ids(context + text)[len(start) :]) for text in (f" {letter}", letter, f"({letter}")}
    kept = [text for text in texts if not any(text != other and text[: len(other)] == other for other in texts)]
    return float(np.logaddexp.reduce([logprobs([*start, *text])[len(start) - 1 :].sum() for text in kept]))


def said_yes(item: Item, choice: str) -> float:
    context = f"Question: {item.question}\nProposed answer: {choice}\nIs the proposed answer correct?\nAnswer:"
    return after(context, " Yes") - after(context, " No")


def rated(item: Item, choice: str) -> float:
    labels = ["very implausible", "implausible", "neutral", "plausible", "very plausible"]
    context = (
        f"{item.question}\nHow would you rate the following answer: {choice}\n"
        f"Choose one of the following response options: {', '.join(labels)}\n"
    )
    likelihoods = np.exp([after(context, label) for label in labels])
    return float((np.arange(1, 6) * likelihoods).sum() / likelihoods.sum())


def channel(item: Item, choice: str) -> float:
    return after(f"{choice}\n", item.question)


def state(text: str) -> Any:
    with torch.no_grad():
        found = reference()(torch.tensor([ids(text)]), output_hidden_states=True)
    return found.hidden_states[-1][0, -1].double()


def alike(item: Item, choice: str) -> float:
    question = state(f"Question: {item.question}\nAnswer:")
    return float(torch.nn.functional.cosine_similarity(question, state(choice), dim=0))


PLAIN: dict[str, Callable[[Item, str], float]] = {
    "quoted-sum-forward": forward,
    "quoted-mean-forward": mean_forward,
    "quoted-mean-masked": mean_forward,
    "quoted-sum-surprisal": package,
    "surprisal": forward,
    "yes-no": said_yes,
    "rating": rated,
    "noisy-channel": channel,
    "embedding": alike,
}


@pytest.mark.parametrize(("name", "plainly"), [*PLAIN.items(), ("spellings", spelled)], ids=[*PLAIN, "spellings"])
def test_a_reading_is_what_a_few_plain_lines_compute(name: str, plainly: Any, tmp_path: Path) -> None:
    found = scores(run(f"options/{name}", tmp_path))
    for item in ITEMS:
        for index, choice in enumerate(item.choices):
            assert found[item.id, index] == pytest.approx(plainly(item, choice), abs=1e-4)


def test_the_models_own_loss_times_the_tokens_is_minus_the_sum(tmp_path: Path) -> None:
    masked = run("options/quoted-mean-masked", tmp_path / "masked")
    summed = scores(run("options/quoted-sum-forward", tmp_path / "forward"))
    for row in masked.observations().to_pylist():
        assert row["value"] * len(row["tokens"]) == pytest.approx(-summed[row["item"], row["choice"]], abs=1e-4)
        assert row["ranks"] == [-1] * len(row["tokens"])


def test_permuting_the_options_permutes_the_scores(tmp_path: Path) -> None:
    names = [*(f"options/{name}" for name in PLAIN), "options/cloze:pmi", "options/cloze:first_token"]
    tables = []
    for name, items in (("one", ITEMS), ("other", tuple(map(turned, ITEMS)))):
        data = Dataset("quiz", {"test": items})
        found = evaluate(model=HashModel(), data=data, protocols=names, out=tmp_path / name)
        assert {*found.protocols} == {*names}
        tables.append(
            {(row["protocol"], row["item"], row["choice"]): row["score"] for row in found.scores().to_pylist()}
        )
    last = {item.id: len(item.choices) - 1 for item in ITEMS}
    one, other = tables
    assert one == {(name, item, last[item] - index): score for (name, item, index), score in other.items()}


def test_generated_scores_are_the_forward_scores_of_the_same_tokens(tmp_path: Path) -> None:
    ((_, generated),) = real_model().answer([Generation(answers.ids(*ids("Tim was sad.")), 5)])
    said = real_model().tokenizer.decode(generated.tokens).strip()
    item = Item("1", "Tim was sad.", ("so what", said), (1,))
    base = resolve("options/quoted-mean-generate")["options/quoted-mean-generate"]
    generate = replace(base, question="{question}", continuation=" {choice}")
    ask = replace(generate, reading="loglikelihood", decision="argmax", ties="first", new_tokens=None)
    data, protocols = Dataset("d", {"test": (item,)}), {"generate": generate, "forward": ask}
    found = evaluate(model=real_model(), data=data, protocols=protocols, out=tmp_path)
    seen = {(row["protocol"], row["choice"]): row["score"] for row in found.scores().to_pylist()}
    assert np.isnan(seen["generate", 0])
    assert seen["generate", 1] == pytest.approx(seen["forward", 1], abs=1e-4)
    assert [row.value for row in found.rows()] == [1.0, 1.0]


@pytest.mark.parametrize(("model", "value"), [("fake:oracle", 1.0), ("fake:anti-oracle", 0.0)])
def test_every_reading_agrees_with_the_oracle(model: str, value: float, tmp_path: Path) -> None:
    single = Dataset("quiz", {"test": (ITEMS[0], ITEMS[2])})  # batch calibration leaves nothing of one item of a kind
    headlines = {
        name: next(iter(resolve(name).values()))
        for name in sorted({n.partition(":")[0] for n in resolve("options", "masked-lm", "encoder-decoder")})
    }
    kept = {name: protocol for name, protocol in headlines.items() if protocol.calibration != "batch"}
    long = {name: replace(p, new_tokens=40 if p.new_tokens else None) for name, p in kept.items()}
    found = evaluate(model=model, data=single, protocols=long, out=tmp_path)
    of_other_tools = {protocol.reading for protocol in resolve("compat").values()}
    assert {protocol.reading for protocol in long.values()} >= set(READINGS) - of_other_tools
    assert {row.protocol: row.value for row in found.rows()} == dict.fromkeys(long, value)


@pytest.mark.parametrize("name", [name for name in PLAIN if name != "noisy-channel"] + ["spellings"])
def test_a_reading_computes_no_token_twice(name: str) -> None:
    model = real_model()
    assert model.check(model.window) is not None
    (protocol,) = resolve(f"options/{name}").values()
    asking = PreparedBlock()
    add_requests(asking, protocol, [render(protocol, item, ()) for item in ITEMS], model)
    before = model.computed
    assert len(list(observe(model, asking.wanted))) == len(asking.wanted)
    assert model.computed - before <= unique_tokens(list(asking.wanted.values()), model.tokenizer)
    assert model.computed - before < asking.inputs


ODD = {
    "empty": ("", "x"),
    "blank": ("  ", "x"),
    "duplicate": ("same", "same", "other"),
    "prefix": ("mat", "matron"),
    "one": ("alone",),
    "scripts": ("猫", "кот", "🐈‍⬛", "cat"),
}


@pytest.mark.costly("all protocols for any data")
def test_odd_options_are_scored_or_missing_with_a_reason(tmp_path: Path) -> None:
    items = tuple(Item(kind, f"Which {kind}?", choices, (0,)) for kind, choices in ODD.items())
    names = [name for name in resolve("options") if "free" not in name]
    found = evaluate(model=HashModel(), data=Dataset("odd", {"test": items}), protocols=names, out=tmp_path)
    for row in found.rows():
        assert row.n + row.missing == len(items)
    assert all(row["missing"] for row in found.observations().to_pylist() if row["key"] is None)
    rows = [row for row in found.scores().to_pylist() if row["protocol"] == "options/quoted-sum-forward"]
    assert np.isfinite([row["score"] for row in rows]).all()
    first, second, _ = (row["score"] for row in rows if row["item"] == "duplicate")
    assert first == second


def test_labels_that_begin_each_other_are_refused(tmp_path: Path) -> None:
    rating = next(iter(resolve("options/rating").values()))
    ten = replace(rating, continuation="\n".join(f" {number}" for number in range(1, 11)))
    with pytest.raises(ProtocolError, match=r"can't tell ' 1' and ' 10' apart, .*use other labels"):
        evaluate(model=HashModel(), data=QUIZ, protocols={"ten": ten}, out=tmp_path)


class Broken(HashModel):
    """Answers with NaN and minus infinity, and stops generating at once."""

    def answer(self, questions: Sequence[Any]) -> Iterator[tuple[int, TokenScores]]:
        for index, answer in super().answer(questions):
            match questions[index]:
                case Generation(sampling=None):
                    yield index, TokenScores.of()
                case Generation():
                    yield index, answer
                case Cosine():
                    yield index, Cosine.answer(float("nan"))
                case _:
                    bad = np.full(len(answer.tokens), np.nan if index % 2 else -np.inf, dtype=np.float32)
                    yield index, replace(answer, logprobs=bad)


def test_a_model_without_numbers_gives_none(tmp_path: Path) -> None:
    found = evaluate(model=Broken(), data=QUIZ, protocols=["options"], out=tmp_path)
    rows = {row.protocol: row for row in found.rows()}
    right = {row.n for name, row in rows.items() if "free" not in name and row.value == row.value and row.value > 0}
    assert right <= {0, 3}
    assert rows["options/embedding"].missing == 3
    assert rows["options/quoted-mean-generate"].missing == 3
    assert (rows["options/free-simple-evals"].n, rows["options/free-simple-evals"].value) == (3, 0.0)


def test_a_span_as_long_as_the_window_has_a_loss_and_a_longer_or_empty_one_is_missing() -> None:
    protocol = mmlu_protocol(reading="masked", shots=0, choices=None, question="{question}", continuation="{choice}")
    model = HashModel()
    for window, missing in ((12, None), (11, "do not fit the window")):
        model.window = window
        asking = PreparedBlock()
        request = render(protocol, Item("1", "question", ("abc",), (0,)), ())
        add_requests(asking, protocol, [request], model)  # BOS and eight bytes, then three
        reasons = [row.missing for row in (*asking.requests, *asking.spans) if row.missing]
        assert (not reasons) == (missing is None)
    (embedding,) = resolve("options/embedding").values()
    block = PreparedBlock()
    add_requests(block, embedding, [render(embedding, Item("1", "Why?", ("", "so"), (0,)), ())], HashModel())
    empty, other = block.spans
    assert (empty.key, other.missing) == (None, None)
    assert empty.missing == "an empty choice has no hidden state of its own to compare"


def test_observe_gives_a_row_per_question() -> None:
    span = Span(answers.ids(65), answers.ids(66, 67))
    (row,) = observe(HashModel(), {span.key: span})
    assert (row.key, list(row.tokens), list(row.sizes), row.value) == (span.key, [66, 67], [1, 1], None)
