"""What every other way of asking says, chains of thought among them, against a few plain lines."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from choicewise import Run, evaluate
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import ModelError, ProtocolError
from choicewise.extensions.explain.item_report import explanation_lines
from choicewise.extensions.run.plan import unique_tokens
from choicewise.models.fake import HashModel
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.readings import READINGS
from choicewise.questions import (
    Conclusion,
    Cosine,
    Generation,
    Sampling,
    SetSpan,
    Span,
    TokenScores,
)
from choicewise.requests.prompters import add_prompts
from choicewise.requests.render import render
from choicewise.requests.request import PreparedBlock
from choicewise.results.explain import explain
from choicewise.running.observe import observe
from choicewise.scoring.combine import OVER_CHAINS, marginal, vote
from tests.helpers import answers
from tests.helpers.answers import ids
from tests.helpers.messages import Gist
from tests.helpers.observed import continuations, row
from tests.helpers.protocols import mmlu_protocol
from tests.helpers.set_mask import set_logprobs
from tests.helpers.tiny_models import real_model
from tests.helpers.toy_tokenizers import ToyModel
from tests.paths import SHARED

ITEMS = (
    Item(
        "1", "What did Lily see in the park?", ("a big red ball", "a dog", "your mom and dad"), (1,)
    ),
    Item(
        "2",
        "Where do birds live?",
        ("in a tree", "in the sea", "under a bed", "in a tree house"),
        (0, 3),
    ),
    Item("3", "Tim was sad. Why?", ("He lost his toy.", "He found a toy."), (0,)),
)
QUIZ = Dataset("quiz", {"test": ITEMS})


def turned(item: Item) -> Item:
    """With its options in reverse order."""
    last = len(item.choices) - 1
    return replace(
        item, choices=item.choices[::-1], gold=tuple(sorted(last - index for index in item.gold))
    )


@cache
def reference() -> Any:
    """The same weights in plain transformers."""
    return transformers.AutoModelForCausalLM.from_pretrained(
        SHARED / "models" / "stories260K", dtype=torch.float32
    )


def encoded(text: str) -> list[int]:
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
    start = len(encoded(context))
    return float(logprobs(encoded(context + continuation))[start - 1 :].sum())


def run(name: str, out: Path, model: Any = None, data: Dataset = QUIZ) -> Run:
    return evaluate(model=model or real_model(), data=data, protocols=[name], out=out)


def scores(found: Run) -> dict[tuple[str, int], float]:
    return {(row["item"], row["choice"]): row["score"] for row in found.scores().to_pylist()}


def forward(item: Item, choice: str) -> float:
    return after(f"Question: {item.question}\nAnswer:", f' "{choice}"')


def mean_forward(item: Item, choice: str) -> float:
    context = f"Question: {item.question}\nAnswer:"
    return forward(item, choice) / (len(encoded(f'{context} "{choice}"')) - len(encoded(context)))


def package(item: Item, choice: str) -> float:
    text = f'Question: {item.question}\nAnswer: "{choice}"'
    tokens, bos, eos = encoded(text), real_model().tokenizer.bos_id, real_model().tokenizer.eos_id
    start = len(encoded(f"Question: {item.question}\nAnswer:"))
    return float(logprobs([bos, *tokens], forbidden=eos)[start:].sum()) / len(f'"{choice}"')


def spelled(item: Item, choice: str) -> float:
    letter = "ABCD"[item.choices.index(choice)]
    lines = "".join(
        f"{label}. {choice}\n" for label, choice in zip("ABCD", item.choices, strict=False)
    )
    context = f"Question: {item.question}\n{lines}Answer:"
    start = encoded(context)
    texts = {
        tuple(encoded(context + text)[len(start) :])
        for text in (f" {letter}", letter, f"({letter}")
    }
    kept = [
        text
        for text in texts
        if not any(text != other and text[: len(other)] == other for other in texts)
    ]
    return float(
        np.logaddexp.reduce([logprobs([*start, *text])[len(start) - 1 :].sum() for text in kept])
    )


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
        found = reference()(torch.tensor([encoded(text)]), output_hidden_states=True)
    return found.hidden_states[-1][0, -1].double()


def alike(item: Item, choice: str) -> float:
    question = state(f"Question: {item.question}\nAnswer:")
    return float(torch.nn.functional.cosine_similarity(question, state(choice), dim=0))


def unordered(item: Item, choice: str) -> float:
    """The options as a set: each encoded by itself, as what stands before and after them."""
    encode = real_model().tokenizer.encode
    lines = encode([f'"{each}" ' for each in item.choices], special=False)
    after, scored = encode(["Answer:", f' "{choice}"'], special=False)
    before = encoded(item.question)
    edges = len(before) + np.cumsum([0, *map(len, lines)])
    context = answers.ids(*before, *(token for line in (*lines, after) for token in line))
    return float(set_logprobs(reference(), SetSpan(context, scored, edges.astype(np.int32))).sum())


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
    "set-based": unordered,
}


@pytest.mark.costly("half a second where the first of its file pays for imports")
@pytest.mark.parametrize(
    ("name", "plainly"), [*PLAIN.items(), ("spellings", spelled)], ids=[*PLAIN, "spellings"]
)
def test_a_reading_is_what_a_few_plain_lines_compute(
    name: str, plainly: Any, tmp_path: Path
) -> None:
    found = scores(run(f"options/{name}", tmp_path))
    for item in ITEMS:
        for index, choice in enumerate(item.choices):
            assert found[item.id, index] == pytest.approx(plainly(item, choice), abs=1e-4)


def test_the_models_own_loss_times_the_tokens_is_minus_the_sum(tmp_path: Path) -> None:
    masked = run("options/quoted-mean-masked", tmp_path / "masked")
    summed = scores(run("options/quoted-sum-forward", tmp_path / "forward"))
    for seen in masked.observations().to_pylist():
        assert seen["value"] * len(seen["tokens"]) == pytest.approx(
            -summed[seen["item"], seen["choice"]], abs=1e-4
        )
        assert seen["ranks"] == [-1] * len(seen["tokens"])


def test_permuting_the_options_permutes_the_scores(tmp_path: Path) -> None:
    names = [
        *(f"options/{name}" for name in PLAIN),
        "options/cloze:pmi",
        "options/cloze:first_token",
    ]
    tables = []
    for name, items in (("one", ITEMS), ("other", tuple(map(turned, ITEMS)))):
        data = Dataset("quiz", {"test": items})
        found = evaluate(model=HashModel(), data=data, protocols=names, out=tmp_path / name)
        assert {*found.protocols} == {*names}
        tables.append(
            {
                (r["protocol"], r["item"], r["choice"]): r["score"]
                for r in found.scores().to_pylist()
            }
        )
    last = {item.id: len(item.choices) - 1 for item in ITEMS}
    one, other = tables
    assert one == {
        (name, item, last[item] - index): score for (name, item, index), score in other.items()
    }


def test_generated_scores_are_the_forward_scores_of_the_same_tokens(tmp_path: Path) -> None:
    ((_, generated),) = real_model().answer([Generation(answers.ids(*encoded("Tim was sad.")), 5)])
    said = real_model().tokenizer.decode(generated.tokens).strip()
    item = Item("1", "Tim was sad.", ("so what", said), (1,))
    base = resolve("options/quoted-mean-generate")["options/quoted-mean-generate"]
    generate = replace(base, question="{question}", continuation=" {choice}")
    ask = replace(
        generate, reading="loglikelihood", decision="argmax", ties="first", new_tokens=None
    )
    data, protocols = Dataset("d", {"test": (item,)}), {"generate": generate, "forward": ask}
    found = evaluate(model=real_model(), data=data, protocols=protocols, out=tmp_path)
    seen = {(row["protocol"], row["choice"]): row["score"] for row in found.scores().to_pylist()}
    assert np.isnan(seen["generate", 0])
    assert seen["generate", 1] == pytest.approx(seen["forward", 1], abs=1e-4)
    assert [row.value for row in found.rows()] == [1.0, 1.0]


@pytest.mark.parametrize(("model", "value"), [("fake:oracle", 1.0), ("fake:anti-oracle", 0.0)])
def test_every_reading_agrees_with_the_oracle(model: str, value: float, tmp_path: Path) -> None:
    single = Dataset(
        "quiz", {"test": (ITEMS[0], ITEMS[2])}
    )  # batch calibration leaves nothing of one item of a kind
    asked = ("options", "masked-lm", "encoder-decoder", "decision/endpoint-letter")
    headlines = {
        name: next(iter(resolve(name).values()))
        for name in sorted({n.partition(":")[0] for n in resolve(*asked)})
    }
    kept = {
        name: protocol for name, protocol in headlines.items() if protocol.calibration != "batch"
    }
    long = {name: replace(p, new_tokens=40 if p.new_tokens else None) for name, p in kept.items()}
    found = evaluate(model=model, data=single, protocols=long, out=tmp_path)
    of_other_tools = {protocol.reading for protocol in resolve("compat").values()}
    in_a_chat = {"along-thought"}  # of a model that thinks
    assert {protocol.reading for protocol in long.values()} >= set(
        READINGS
    ) - of_other_tools - in_a_chat
    assert {row.identity.protocol: row.value for row in found.rows()} == dict.fromkeys(long, value)


@pytest.mark.parametrize(
    "name", [name for name in PLAIN if name not in ("noisy-channel", "set-based")] + ["spellings"]
)
def test_a_reading_computes_no_token_twice(name: str) -> None:
    model = real_model()
    assert model.check(model.window) is not None
    (protocol,) = resolve(f"options/{name}").values()
    asking = PreparedBlock()
    add_prompts(asking, protocol, [render(protocol, item, ()) for item in ITEMS], model)
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
    found = evaluate(
        model=HashModel(), data=Dataset("odd", {"test": items}), protocols=names, out=tmp_path
    )
    for each in found.rows():
        assert each.counts.n + each.counts.missing == len(items)
    assert all(row["missing"] for row in found.observations().to_pylist() if row["key"] is None)
    rows = [
        row for row in found.scores().to_pylist() if row["protocol"] == "options/quoted-sum-forward"
    ]
    assert np.isfinite([row["score"] for row in rows]).all()
    first, second, _ = (row["score"] for row in rows if row["item"] == "duplicate")
    assert first == second


def test_labels_that_begin_each_other_are_refused(tmp_path: Path) -> None:
    rating = next(iter(resolve("options/rating").values()))
    ten = replace(rating, continuation="\n".join(f" {number}" for number in range(1, 11)))
    with pytest.raises(ProtocolError, match=r"can't distinguish ' 1' and ' 10' .*use other labels"):
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
                    bad = np.full(
                        len(answer.tokens), np.nan if index % 2 else -np.inf, dtype=np.float32
                    )
                    yield index, replace(answer, logprobs=bad)


@pytest.mark.costly("half a second where the first of its file pays for imports")
def test_a_model_without_numbers_gives_none(tmp_path: Path) -> None:
    found = evaluate(model=Broken(), data=QUIZ, protocols=["options"], out=tmp_path)
    rows = {row.identity.protocol: row for row in found.rows()}
    right = {
        row.counts.n
        for name, row in rows.items()
        if "free" not in name and row.value == row.value and row.value > 0
    }
    assert right <= {0, 3}
    assert (
        rows["options/embedding"].counts.missing,
        rows["options/quoted-mean-generate"].counts.missing,
    ) == (
        3,
        3,
    )
    assert (
        rows["options/free-simple-evals"].counts.n,
        rows["options/free-simple-evals"].value,
    ) == (
        3,
        0.0,
    )


def test_a_span_as_long_as_the_window_has_a_loss_and_a_longer_or_empty_one_is_missing() -> None:
    protocol = mmlu_protocol(
        reading="masked", shots=0, choices=None, question="{question}", continuation="{choice}"
    )
    model = HashModel()
    for window, missing in ((12, None), (11, "fit the window")):
        model.window = window
        asking = PreparedBlock()
        request = render(protocol, Item("1", "question", ("abc",), (0,)), ())
        add_prompts(asking, protocol, [request], model)  # BOS and eight bytes, then three
        reasons = [row.missing for row in (*asking.requests, *asking.spans) if row.missing]
        assert (not reasons) == (missing is None)
    (embedding,) = resolve("options/embedding").values()
    block = PreparedBlock()
    add_prompts(
        block, embedding, [render(embedding, Item("1", "Why?", ("", "so"), (0,)), ())], HashModel()
    )
    empty, other = block.spans
    assert (empty.key, other.missing) == (None, None)
    assert empty.missing == Gist("no hidden state")


def test_observe_gives_a_row_per_question() -> None:
    span = Span(answers.ids(65), answers.ids(66, 67))
    (row,) = observe(HashModel(), {span.key: span})
    assert (row.key, list(row.tokens), list(row.sizes), row.value) == (
        span.key,
        [66, 67],
        [1, 1],
        None,
    )


CHAIN_ITEMS = (
    Item(
        "1", "What did Lily see in the park?", ("a big red ball", "a dog", "your mom and dad"), (1,)
    ),
    Item("2", "Where do birds live?", ("in a tree", "in the sea"), (0,)),
    Item("3", "Tim was sad. Why?", ("He lost his toy.", "He found a toy."), (0,)),
)
CHAIN_QUIZ = Dataset("quiz", {"test": CHAIN_ITEMS})
NAME = "options/chain-of-thought"
ENTRY = resolve(NAME)
SHORT = {name: replace(protocol, chains=3, new_tokens=12) for name, protocol in ENTRY.items()}
HEADLINE = f"{NAME}:marginal"


def chain_scores(run: Run) -> dict[tuple[str, str, int], float]:
    return {
        (row["protocol"], row["item"], row["choice"]): row["score"]
        for row in run.scores().to_pylist()
    }


def texts(run: Run) -> dict[tuple[str, int], str]:
    rows = run.observations().to_pylist()
    return {(row["item"], row["part"]): row["text"] for row in rows if row["choice"] == -1}


@pytest.mark.costly("plain lines compute every token anew from all before it")
def test_marginal_and_vote_are_what_plain_lines_compute_of_the_same_streams(
    shared_data: Path, tmp_path: Path
) -> None:
    folder = shared_data / "models" / "stories260K"
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def rows(tokens: list[int]) -> Any:
        with torch.no_grad():
            return torch.log_softmax(model(torch.tensor([tokens])).logits[0].double(), -1).numpy()

    found = evaluate(model=str(folder), data=CHAIN_QUIZ, protocols=SHORT, out=tmp_path)
    seen, said = chain_scores(found), texts(found)
    for item in CHAIN_ITEMS:
        listed = "".join(
            f" ({letter}) {text}" for letter, text in zip("ABC", item.choices, strict=False)
        )
        prompt = f"Q: {item.question} Answer Choices:{listed}\nA: Let's think step by step."
        context, after = tokenizer(prompt).input_ids, []
        for number in range(3):
            stem, thought = hashlib.sha256(f"0|{number}|{item.id}".encode()).digest(), []
            while len(thought) < 12:
                digest = hashlib.blake2b(
                    stem + len(thought).to_bytes(8, "little"), digest_size=8
                ).digest()
                sums = np.cumsum(np.exp(rows(context + thought)[-1]))
                token = int((sums <= (int.from_bytes(digest, "little") >> 11) / 2**53).sum())
                if token == tokenizer.eos_token_id or "\n\n" in tokenizer.decode([*thought, token]):
                    break
                thought.append(token)
            assert tokenizer.decode(thought).strip() == said[item.id, number].strip()
            sums = []
            for index in range(len(item.choices)):
                before = tokenizer(f"{prompt} \nTherefore, the answer is").input_ids
                whole = tokenizer(f"{prompt} \nTherefore, the answer is ({'ABC'[index]})").input_ids
                assert whole[: len(context)] == context
                tokens = context + thought + whole[len(context) :]
                scored = range(len(tokens) - len(whole) + len(before), len(tokens))
                table = rows(tokens)
                sums.append(sum(table[place - 1, tokens[place]] for place in scored))
            after.append(sums)
        votes = np.mean([np.arange(len(sums)) == np.argmax(sums) for sums in after], axis=0)
        for index, whole in enumerate(np.log(np.exp(after).mean(axis=0))):
            assert seen[HEADLINE, item.id, index] == pytest.approx(whole, abs=1e-4)
            assert seen[f"{NAME}:vote", item.id, index] == pytest.approx(votes[index])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The fake's run, which nobody changes."""
    return evaluate(
        model=HashModel(),
        data=CHAIN_QUIZ,
        protocols=SHORT,
        out=tmp_path_factory.mktemp("chains") / "whole",
    )


def test_the_same_chains_come_whatever_is_asked_besides(whole: Run, tmp_path: Path) -> None:
    def run(
        name: str,
        protocols: Any = SHORT,
        items: tuple[Item, ...] = CHAIN_ITEMS,
        limit: int | None = None,
    ) -> Run:
        data, out = Dataset("quiz", {"test": items}), tmp_path / name
        return evaluate(model=HashModel(), data=data, protocols=protocols, out=out, limit=limit)

    turned, first = run("turned", items=CHAIN_ITEMS[::-1]), run("first", limit=1)
    fewer, other = (
        run(next(iter(c)), {HEADLINE: replace(SHORT[HEADLINE], **c)})
        for c in ({"chains": 2}, {"seed": 1})
    )
    assert len(set(texts(whole).values())) == 9
    assert (texts(whole), chain_scores(whole)) == (texts(turned), chain_scores(turned))
    assert texts(first).items() < texts(whole).items()
    assert chain_scores(first).items() < chain_scores(whole).items()
    assert texts(fewer) == {place: text for place, text in texts(whole).items() if place[1] < 2}
    assert not set(texts(whole).values()) & set(texts(other).values())


class Dying(HashModel):
    """Samples, and breaks down at the third score."""

    def answer(self, questions: Sequence[Any]) -> Iterator[tuple[int, TokenScores]]:
        scored = 0
        for index, answer in super().answer(questions):
            scored += not isinstance(questions[index], Generation)
            if scored == 3:
                raise KeyboardInterrupt
            yield index, answer


def test_an_interrupted_run_goes_on_with_its_chains(whole: Run, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        evaluate(model=Dying(), data=CHAIN_QUIZ, protocols=SHORT, out=tmp_path / "cut")
    resumed = evaluate(model=HashModel(), data=CHAIN_QUIZ, protocols=SHORT, out=tmp_path / "cut")
    assert (texts(resumed), chain_scores(resumed)) == (texts(whole), chain_scores(whole))
    keys = resumed.tables.observations["key"].to_pylist()
    assert len(keys) == len(set(keys)) == 9 + 3 * 7


def test_one_chain_of_one_token_is_the_prompt_with_that_token(tmp_path: Path) -> None:
    one = replace(SHORT[HEADLINE], chains=1, new_tokens=1)
    found = evaluate(model=HashModel(), data=CHAIN_QUIZ, protocols={"one": one}, out=tmp_path)
    for item in CHAIN_ITEMS:
        request = render(one, item, ())
        table = found.observations().to_pylist()
        (drawn,) = [
            row["tokens"] for row in table if row["item"] == item.id and row["choice"] == -1
        ]
        before = [*request.context().encode(), *drawn, *request.proposals[0].encode()]
        for index, text in enumerate(request.continuations):
            ((_, seen),) = HashModel().answer([Span(ids(*before), ids(*text.encode()))])
            assert chain_scores(found)["one", item.id, index] == pytest.approx(
                float(seen.logprobs.sum()), abs=1e-5
            )


@given(
    weights=st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any),
    place=st.integers(0, 99),
)
def test_draw_finds_the_share_in_the_cumulative_sum(weights: list[int], place: int) -> None:
    drawn = Sampling.of(0, "item", 0).draw(np.asarray(weights), place)
    digest = hashlib.blake2b(
        Sampling.of(0, "item", 0).stream + place.to_bytes(8, "little"), digest_size=8
    ).digest()
    share = (int.from_bytes(digest, "little") >> 11) / 2**53 * sum(weights)
    assert weights[drawn] > 0
    assert sum(weights[:drawn]) <= share < sum(weights[: drawn + 1])


def test_draws_come_as_often_as_they_are_probable() -> None:
    weights = np.asarray([0.5, 0.0, 0.3, 0.2])
    drawn = [Sampling.of(7, "item", number).draw(weights, 0) for number in range(4000)]
    assert np.bincount(drawn, minlength=4) / 4000 == pytest.approx(weights, abs=0.03)


def test_keys_tell_apart_whatever_changes_the_answer_and_a_chain_ends_before_its_stop() -> None:
    chain = Generation(ids(1, 2), 5, (b"\n\n",), Sampling.of(0, "item", 0))
    others = [
        *(
            replace(chain, context=ids(1, 3)),
            replace(chain, limit=6),
            replace(chain, stops=(b"\n",)),
        ),
        *(
            replace(chain, sampling=Sampling.of(*args))
            for args in ((1, "item", 0), (0, "item", 1), (0, "other", 0))
        ),
    ]
    span = Span(ids(3), ids(4))
    assert len({each.key for each in (chain, *others)}) == 7
    assert len({Conclusion(each, span).key for each in (chain, *others)}) == 7
    assert Conclusion(chain, span).key != Conclusion(chain, replace(span, continuation=ids(5))).key
    assert Conclusion(chain, span).after(ids(8, 9)).context.tolist() == [1, 2, 8, 9, 3]
    assert (chain.inputs, Conclusion(chain, span).inputs) == (6, 8)
    table = [b"a\n", b"\nb", b"b"]
    counts = [chain.before_stop(tokens, table) for tokens in ([0], [0, 2], [0, 1], [1, 0, 2])]
    assert counts == [1, 2, 1, 3]


def test_marginal_and_vote_by_hand() -> None:
    first = continuations(
        [[row(" A", np.log(0.5)), row(" B", np.log(0.25))], [row(" A", -1.0), row(" B", -1.0)]]
    )
    second = continuations(
        [[row(" A", np.log(0.1)), row(" B", np.log(0.75))], [row(" A", -1.0), row(" B", -3.0)]]
    )
    assert np.exp(marginal([first, second])[:2]) == pytest.approx([0.3, 0.5])
    assert vote([first, second]) == pytest.approx([0.5, 0.5, 0.75, 0.25])
    lost = continuations([[row(" A"), row(" B", -1.0)], [row(" A", -1.0), row(" B", -2.0)]])
    assert np.isnan(marginal([first, lost])).tolist() == [True, False, False, False]
    assert np.isnan(vote([first, lost])).tolist()[0]
    assert set(OVER_CHAINS) == {protocol.score for protocol in ENTRY.values()}


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"chains": 0}, "needs chains"),
        ({"chains": None}, "needs chains"),
        ({"new_tokens": 0}, "needs new_tokens"),
        ({"seed": None}, "needs a seed"),
        ({"separator": ""}, "separator can't be empty"),
        ({"proposal": ""}, "text after every chain"),
        ({"proposal": " {choice}?"}, "one proposal for all"),
        ({"fit": "cut-start"}, "takes fit drop-last-shot or refuse, not cut-start"),
        ({"boundary": "heal"}, "boundary heal corrects log-likelihoods"),
        ({"score": "sum"}, "has no score sum; it has marginal, vote"),
        ({"reading": "loglikelihood", "score": "sum"}, "loglikelihood does not use"),
    ],
)
def test_what_means_nothing_is_refused(axes: dict[str, Any], message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        replace(ENTRY[HEADLINE], **axes)


def test_a_model_that_samples_nothing_is_refused(tmp_path: Path) -> None:
    class Scorer(HashModel):
        supports = HashModel.supports - {Sampling}

    with pytest.raises(ModelError, match="support Sampling, .* chain-of-thought"):
        evaluate(model=Scorer(), data=CHAIN_QUIZ, protocols=SHORT, out=tmp_path)


def test_a_plan_counts_chains_at_their_full_length_and_those_that_can_not_fit_are_missing() -> None:
    model, protocol = HashModel(), SHORT[HEADLINE]
    request = render(protocol, CHAIN_ITEMS[1], ())
    needed = 1 + len(request.context() + request.proposals[0] + " (A)") + 12 - 1
    for window, reason in ((needed, None), (needed - 1, "too long")):
        model.window = window
        asking = PreparedBlock()
        add_prompts(asking, protocol, [request], model)
        assert [(row.missing or "")[:8] or None for row in asking.requests] == [reason]
        assert (
            max((question.inputs for question in asking.wanted.values()), default=needed) == needed
        )
    asking, model = PreparedBlock(), HashModel()
    add_prompts(asking, protocol, [request], model)
    context, behind = 1 + len(request.context()), len(request.proposals[0] + " (")
    # The beginning once for all chains and once for all spans; each span reads its last input beside its siblings.
    unique = unique_tokens(list(asking.wanted.values()), model.tokenizer)
    assert unique == context + 3 * 11 + context + 3 * (12 + behind + 2)


def test_a_proposal_that_shares_a_token_with_the_question_is_missing() -> None:
    protocol = mmlu_protocol(
        **{
            "reading": "chain-of-thought",
            "score": "marginal",
            "shots": 0,
            "choices": None,
            "seed": 0,
        },
        **{
            "chains": 1,
            "new_tokens": 2,
            "question": "{question}",
            "proposal": "b",
            "continuation": "{choice}",
        },
    )
    asking = PreparedBlock()
    add_prompts(
        asking, protocol, [render(protocol, Item("1", "a", ("a", "b"), (0,)), ())], ToyModel()
    )
    reasons = [row.missing for row in asking.spans if row.choice >= 0]
    assert reasons == [Gist("shares a token ... line break")] * 2


def test_the_explanation_shows_the_chains_and_what_stands_behind_them(whole: Run) -> None:
    told = explain(whole, "2")
    chains = [scored for scored in told.asked[0].scored if scored.choice == -1]
    assert {("2", scored.part): scored.generated for scored in chains}.items() < texts(
        whole
    ).items()
    behind = [scored for scored in told.asked[0].scored if scored.choice == 0]
    assert [scored.part for scored in behind] == [0, 1, 2]
    assert {(scored.context, scored.continuation) for scored in behind} == {
        (" \nTherefore, the answer is", " (A)")
    }
    assert "".join(token.text for token in behind[0].tokens) == " (A)"
    assert Gist("after the chain") in list(explanation_lines(told))


class Brief(HashModel):
    """A model that ends some of its chains at once."""

    def answer(self, questions: Sequence[Any]) -> Iterator[tuple[int, TokenScores]]:
        for index, answer in super().answer(questions):
            chain = (
                isinstance(questions[index], Generation) and questions[index].sampling is not None
            )
            yield (
                index,
                answer.first(0) if chain and questions[index].sampling.stream[0] % 2 else answer,
            )


@pytest.fixture(scope="module")
def brief(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return evaluate(
        model=Brief(),
        data=CHAIN_QUIZ,
        protocols=SHORT,
        out=tmp_path_factory.mktemp("brief") / "run",
    )


def test_the_explanation_counts_the_tokens_of_each_chain(brief: Run) -> None:
    lengths = set()
    for item in CHAIN_ITEMS:
        (asked,) = explain(brief, item.id).asked
        chains = {scored.part: scored for scored in asked.scored if scored.choice == -1}
        for scored in asked.scored:
            prompt = len((asked.context + (scored.context if scored.choice >= 0 else "")).encode())
            own = len(chains[scored.part].tokens) if scored.choice >= 0 else 0
            assert scored.context_tokens == 1 + prompt + own
        lengths |= {len(chain.tokens) for chain in chains.values()}
    assert {0} < lengths


def test_an_empty_chain_is_a_chain(brief: Run) -> None:
    empty = [place for place, text in texts(brief).items() if not text]
    assert empty
    assert len(empty) < 9
    assert (brief.unanswered, [row.counts.missing for row in brief.rows()]) == ([], [0, 0])
    spans = {
        (row["item"], row["part"], row["choice"]): row for row in brief.observations().to_pylist()
    }
    for item, part in empty:
        request = render(SHORT[HEADLINE], next(each for each in CHAIN_ITEMS if each.id == item), ())
        before = [*request.context().encode(), *request.proposals[0].encode()]
        for choice, text in enumerate(request.continuations):
            ((_, seen),) = HashModel().answer([Span(ids(*before), ids(*text.encode()))])
            assert spans[item, part, choice]["logprobs"] == pytest.approx(seen.logprobs.tolist())
        told = list(explanation_lines(explain(brief, item)))
        assert any(line.startswith("generated") and '"": 0 tokens' in line for line in told)
        assert not [line for line in told if "NaN" in line or "missing" in line]
