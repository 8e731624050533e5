"""An endpoint that answers from a plain model: what is left of its answers beside our own computation of that model."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from choicewise import Run, evaluate
from choicewise.data.dataset import Dataset
from choicewise.data.decisions import decision_drafts
from choicewise.data.items import Item
from choicewise.errors import UsageError
from choicewise.extensions.endpoints.decisions.summary import by_endpoint, served_minus_own
from choicewise.models.load import load_model
from tests.helpers.commands import choicewise
from tests.helpers.decision_server import Asked, behave, serving_decisions
from tests.helpers.misbehaving_server import Server
from tests.paths import GOLDENS, ROOT

pytestmark = [
    pytest.mark.usefixtures("no_pauses"),
    pytest.mark.costly("a model runs, and a server"),
]

MODEL = ROOT / "src" / "choicewise" / "bundled" / "models" / "merrow-bpe-512"
OPTIONS = ("north", "south", "east")
LAYOUT = "decision/vllm-0.32:choice"


def item(number: int) -> Item:
    question = {
        "type": "choice",
        "criteria": dict.fromkeys(OPTIONS),
        "instructions": f"Where does wind {number} blow?",
    }
    row = {
        "id": f"w{number}",
        "state": {"wind": number},
        "question": question,
        "expected": OPTIONS[number % 3],
    }
    (make,) = decision_drafts(row, "0")
    return make()


WINDS = Dataset("winds", {"test": tuple(map(item, range(8)))})


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("own")
    shutil.copytree(MODEL, folder / "chatty")
    template = json.loads((GOLDENS / "chat" / "chatml.json").read_text(encoding="utf-8"))[
        "template"
    ]
    (folder / "chatty" / "chat_template.jinja").write_text(template)
    return evaluate(
        model=folder / "chatty",
        data=WINDS,
        protocols=[LAYOUT, "decision/sglang-1:choice"],
        out=folder / "run",
    )


@pytest.fixture
def server(own: Run) -> Iterator[Server]:
    """Of the same model in the layout of vLLM."""
    shares = own.distribution(LAYOUT)["softmax"].to_numpy().reshape(-1, 3)
    known = {f'{{"wind": {number}}}': each.tolist() for number, each in enumerate(shares)}

    def told(asked: Asked) -> list[float]:
        even = [1 / len(asked.keys)] * len(asked.keys)  # to the probe
        return (
            known.get(json.dumps(json.loads(asked.state)), even)
            if asked.state.startswith("{")
            else even
        )

    with serving_decisions(told) as server:
        server.known = known  # type: ignore[attr-defined]
        yield server


def served(server: Server, out: Path, data: Dataset = WINDS) -> Run:
    model = load_model(f"decisions:{server.url}#decider")
    return evaluate(model=model, data=data, protocols=["decision/endpoint:choice"], out=out)


def test_a_server_of_the_same_model_and_layout_leaves_nothing_and_another_layout_something(
    server: Server, own: Run, tmp_path: Path
) -> None:
    run = served(server, tmp_path / "served")
    assert by_endpoint(own, run) == by_endpoint(run, own) == (run, own)
    assert by_endpoint(own, own) is by_endpoint(run, run) is None
    same, other = served_minus_own(run, own)
    assert (same.own, same.verdict, same.flips, same.n, same.missing) == (
        LAYOUT,
        "within noise",
        0,
        8,
        0,
    )
    assert same.most < 1e-6
    assert same.tv.value < 1e-6
    shares = [own.distribution(each.own)["softmax"].to_numpy() for each in (same, other)]
    gaps = np.abs(shares[0] - shares[1])
    assert (other.mean, other.most) == pytest.approx((gaps.mean(), gaps.max()), abs=1e-6)
    assert other.tv.value == pytest.approx(gaps.reshape(-1, 3).sum(axis=1).mean() / 2, abs=1e-6)
    kl = (shares[0] * np.log(shares[0] / shares[1])).reshape(-1, 3).sum(axis=1)
    assert other.kl.value == pytest.approx(kl.mean(), abs=1e-6)
    assert other.verdict == "unexplained"
    (chosen,) = served_minus_own(run, own, ["decision/endpoint:choice", "decision/sglang-1"])
    assert chosen == other


def test_what_rounding_and_repeats_explain_is_no_difference(
    server: Server, own: Run, tmp_path: Path
) -> None:
    behave(server, "two decimals")
    rounded = served_minus_own(served(server, tmp_path / "rounded"), own)[0]
    assert (rounded.step, rounded.verdict) == (0.01, "within noise")
    assert 1e-4 < rounded.most <= 0.005 + 1e-6 < rounded.allowed
    behave(server)
    server.known['{"wind": 3}'].reverse()  # type: ignore[attr-defined]
    (item, *_) = (turned := served_minus_own(served(server, tmp_path / "turned"), own)[0]).items
    shares = own.distribution(LAYOUT)["softmax"].to_numpy().reshape(-1, 3)[3]
    assert (turned.verdict, item.item, item.most) == (
        "unexplained",
        "w3",
        pytest.approx(abs(shares[0] - shares[2]), abs=1e-6),
    )
    assert turned.flips == (item.served != item.own)


def test_the_command_says_what_is_left_and_lists_the_items(
    server: Server, own: Run, tmp_path: Path
) -> None:
    served(server, tmp_path / "served")
    printed = choicewise("compare", own.folder, tmp_path / "served", "--items", code=0).stdout
    assert "decision/endpoint:choice minus our computation" in printed
    assert [line.split()[0] for line in printed.splitlines() if "within noise" in line] == [LAYOUT]
    assert printed.count("\nw3 ") == 2
    rows = json.loads(
        choicewise("compare", tmp_path / "served", own.folder, "--json", code=0).stdout
    )
    assert [(row["own"], row["verdict"], row["items"]) for row in rows] == [
        (LAYOUT, "within noise", []),
        ("decision/sglang-1:choice", "unexplained", []),
    ]
    refused = choicewise("compare", own.folder, own.folder, "--items", code=2).stderr
    assert "--items does not apply" in refused


def test_the_endpoint_is_the_last_rung_of_a_ladder(
    server: Server, own: Run, tmp_path: Path
) -> None:
    ends = "decision/sglang-1:choice", LAYOUT
    served(server, tmp_path / "served")
    printed = choicewise(
        "ladder", *ends, own.folder, "--served", tmp_path / "served", code=0
    ).stdout
    rung = printed.partition("decision/endpoint:choice minus our computation")[2]
    assert [line.split()[0] for line in rung.splitlines() if "within noise" in line] == [LAYOUT]
    told = json.loads(
        choicewise(
            "ladder", *ends, own.folder, "--served", tmp_path / "served", "--json", code=0
        ).stdout
    )
    assert [(each["own"], each["verdict"]) for each in told["served"]] == [(LAYOUT, "within noise")]
    refused = choicewise("ladder", *ends, own.folder, "--served", own.folder, code=2).stderr
    assert "--served needs" in refused


def test_runs_on_other_data_or_of_other_kinds_are_refused(
    server: Server, own: Run, tmp_path: Path
) -> None:
    other = Dataset("winds", {"test": tuple(map(item, range(3)))})
    with pytest.raises(UsageError, match="are on different data"):
        served_minus_own(served(server, tmp_path / "other", other), own)
    with pytest.raises(UsageError, match="such as decision/transformers-5.23"):
        served_minus_own(served(server, tmp_path / "served"), own, ["decision/endpoint"])
