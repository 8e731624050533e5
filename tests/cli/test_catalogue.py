"""What `choicewise prompts` prints is what a run sends, for every protocol of the catalogue."""

import json
from pathlib import Path
from typing import Any

import pytest

from choicewise import evaluate
from choicewise.data.open import open_dataset
from choicewise.errors import DataError
from choicewise.models.fake import HashModel
from choicewise.protocols.protocol import Protocol
from choicewise.records import GENERATED
from choicewise.requests.render import read_rendered
from choicewise.results.run import Run
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.protocols import entries_for_mmlu

NAMES = [known.name for known in entries_for_mmlu()]
ALL = {name: protocol for known in entries_for_mmlu() for name, protocol in known.protocols.items()}
SEVERAL = {
    *(
        "options/spellings",
        "options/yes-no",
        "options/rating",
        "options/chain-of-thought",
        "options/pride",
    ),
    *(
        "options/set-based",
        "options/permuted-cyclic",
        "options/permuted-full",
        "options/contextual-calibrated",
    ),
}
"""Entries of which a choice is sent in several texts, or after a chain; they are not read back."""
TOKENWISE = ("select", "surprisal-package")
"""Readings whose further parts are tokens of the texts, which only a model's tokenizer knows."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mmlu(tmp_path_factory.mktemp("data"), questions=2)


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All protocols on a fake model."""
    return evaluate(
        model=HashModel(), data=data, protocols=NAMES, out=tmp_path_factory.mktemp("runs") / "run"
    )


@pytest.fixture(scope="module")
def printed(data: Path) -> dict[str, list[dict[str, Any]]]:
    """The lines of every prompt, by the name of the first protocol that has it."""
    told = choicewise(
        "prompts",
        "--data",
        data,
        *(word for name in NAMES for word in ("--protocol", name)),
        code=0,
    )
    named: dict[str, list[dict[str, Any]]] = {}
    for line in map(json.loads, told.stdout.splitlines()):
        named.setdefault(line["protocol"], []).append(line)
    return named


def sent(run: Run, protocol: Protocol) -> dict[str, list[tuple[str, str, int]]]:
    """By item every (context, continuation, choice) that the run has stored."""
    digest = protocol.prompt_digest
    requests = {
        row["item"]: row for row in run.tables.requests.to_pylist() if row["prompt"] == digest
    }
    stored: dict[str, list[tuple[str, str, int]]] = {item: [] for item in requests}
    for row in run.tables.spans.to_pylist():
        derived = row["part"] and protocol.reading in TOKENWISE
        if (
            row["prompt"] == digest
            and row["null"] is None
            and row["choice"] != GENERATED
            and not derived
        ):
            context = requests[row["item"]]["context"] if row["context"] is None else row["context"]
            stored[row["item"]].append((context, row["continuation"], row["choice"]))
    return stored


def told(line: dict[str, Any]) -> list[tuple[str, str, int]]:
    """The same of a printed line."""
    texts = line["continuations"]
    contexts = line.get("contexts") or [line["context"]] * len(texts)
    assert ("context" in line) != ("contexts" in line)
    return list(zip(contexts, texts, line.get("choices", range(len(texts))), strict=True))


ASKING = (
    *(
        "fit",
        "limit",
        "bos",
        "boundary",
        "reading",
        "new_tokens",
        "stop",
        "score",
        "null",
        "outside",
        "decision",
    ),
    *("ties", "letters", "metric"),
)


def keys(run: Run, protocol: Protocol) -> list[tuple[str, int, int, str]]:
    """(item, choice, part, null context, key of the observation) of everything asked under a prompt."""
    rows = run.tables.spans.to_pylist()
    mine = [
        row
        for row in rows
        if row["prompt"] == protocol.prompt_digest and row["null"] in (None, protocol.null)
    ]
    return sorted(
        (row["item"], row["choice"], row["part"], row["null"] or "", row["key"]) for row in mine
    )


def test_every_distinct_prompt_is_printed_as_it_is_sent(
    printed: dict[str, list[dict[str, Any]]], run: Run
) -> None:
    digests = {protocol.prompt_digest for protocol in run.protocols.values()}
    assert {run.protocols[name].prompt_digest for name in printed} == digests
    assert len(printed) == len(digests)
    assert {len(lines) for lines in printed.values()} == {4}
    gold = {row["item"]: row["gold"] for row in run.tables.requests.to_pylist()}
    for name, lines in printed.items():
        protocol = run.protocols[name]
        stored = sent(run, protocol)
        for line in lines:
            assert line["gold"] == gold[line["item"]]
            if protocol.reading == "generate":
                assert not stored[line["item"]], "only the context is sent"
            elif protocol.reading == "chain-of-thought":
                chained = [(line["proposal"], *rest) for _, *rest in told(line)]
                assert sorted(stored[line["item"]]) == sorted(chained * (protocol.chains or 0))
            else:
                assert sorted(stored[line["item"]]) == sorted(told(line)), name


def test_choices_with_contexts_of_their_own_have_contexts(
    printed: dict[str, list[dict[str, Any]]],
) -> None:
    question = "Which of the tides is number 0 of test?"
    line = printed["options/noisy-channel"][0]
    assert line["contexts"] == [
        f"the {word} one of 0\n" for word in ("red", "tall", "salty", "first")
    ]
    assert line["continuations"] == [question] * 4
    assert line["gold"] == [1]
    assert "choices" not in line
    line = printed["options/yes-no"][0]
    assert line["continuations"] == [" Yes", " No"] * 4
    assert line["choices"] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len(set(line["contexts"])) == 4


@pytest.mark.parametrize("name", NAMES)
def test_printed_requests_read_back_have_the_same_observations(
    name: str, printed: dict[str, list[dict[str, Any]]], run: Run, data: Path, tmp_path: Path
) -> None:
    protocol = run.protocols[next(known for known in ALL if known.partition(":")[0] == name)]
    same = next(
        other for other in printed if run.protocols[other].prompt_digest == protocol.prompt_digest
    )
    file = tmp_path / "requests.jsonl"
    file.write_text("\n".join(map(json.dumps, printed[same])), encoding="utf-8")
    if name in SEVERAL:
        with pytest.raises(DataError, match="calls for"):
            read_rendered(file)
        return
    rendered = read_rendered(file)
    kept = {axis: getattr(protocol, axis) for axis in ASKING}
    if protocol.reading == "noisy-channel":
        kept["reading"] = "loglikelihood"  # of which each choice has a context of its own
    asked = {"protocols": {"own": rendered.protocol("own", **kept)}, "rendered": [rendered]}
    own = evaluate(model=HashModel(), data=rendered.dataset, **asked, out=tmp_path / "run")
    assert keys(own, own.protocols["own"]) == keys(run, protocol)
    assert open_dataset(data).rows("test", "tides")[0].id in {
        item for item, *_ in keys(run, protocol)
    }
