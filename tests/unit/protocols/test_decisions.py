"""Decisions on plain models: typed questions as items, the layouts of servers to the byte, and labels of one token."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from choicewise import evaluate
from choicewise.data.dataset import Dataset
from choicewise.data.decisions import DESCRIPTIONS, KIND, KINDS, STATE, decision_drafts
from choicewise.data.items import Item
from choicewise.data.open import open_dataset
from choicewise.errors import DataError, ProtocolError
from choicewise.protocols.between import path
from choicewise.protocols.catalogue import one
from choicewise.protocols.protocol import Protocol
from choicewise.requests.blocks import no_chat
from choicewise.requests.render import TemplateSource, render
from choicewise.tokens.chat_template import MessageAlone, ServedChat
from tests.helpers.commands import choicewise
from tests.helpers.messages import Gist
from tests.helpers.protocols import choice_prompts, mmlu_protocol
from tests.helpers.real_tokenizers import tokenizer_with_bos as tokenizer

CASE = {"question": "Which gas do plants take in?", "n": 3}
GASES = {"carbon dioxide": None, "oxygen": "O2", "helium": ""}


def item(
    kind: str,
    criteria: Any,
    answer: Any = 0,
    state: Any = CASE,
    asked: str | None = "Which one is right?",
) -> Item:
    question = {"type": kind, "criteria": criteria, "instructions": asked}
    (make,) = decision_drafts(
        {"id": "gas", "state": state, "question": question, "expected": answer}, "test/0"
    )
    return make()


ASKED: Mapping[str, Item] = {
    "choice": item("choice", GASES, "oxygen"),
    "noul": item("noul", None, True),
    "noul, true": item("noul", {"true": "the gas is taken in"}, "no"),
    "score": item("score", ["bad", "fair", "good"], 2),
}


def protocol(name: str) -> Protocol:
    return one(f"decision/{name}").protocol


def message(name: str, asked: Item) -> str:
    """What the user says, as every template is given it."""
    return render(protocol(name), asked, (), template=MessageAlone()).context()


# made with the released modules: vllm 0.32.0, transformers 5.23.0, sglang 0.5.23
@pytest.mark.parametrize(
    ("layout", "asked", "size", "digest"),
    [
        (
            "vllm-0.32",
            "choice",
            169,
            "ebef0fff2cfd692d69f3fca5fa8b65de03168bc9a16d50f8133c4ccbd53cdfb1",
        ),
        (
            "vllm-0.32",
            "noul",
            118,
            "4ca6fd69779d56692dbb5aab5f1981a05a68faeed7d04d6243e80d5618e64046",
        ),
        (
            "vllm-0.32",
            "noul, true",
            139,
            "1454c62a98a4899cb47dcc264eb4e5a76a213b449d088013b873408bfd5cbfb8",
        ),
        (
            "vllm-0.32",
            "score",
            148,
            "767eeba74ff694412853224ce45c26c2e3b359417f9d1eed6250b45705f7a990",
        ),
        (
            "transformers-5.23",
            "choice",
            182,
            "2a54235f746e15089647876e425da312f7ca4e00ceb68a3be040c9c39d789ea1",
        ),
        (
            "transformers-5.23",
            "noul",
            96,
            "9c194e6bfca93ff278fac6b05678cbe2535d0ef0299b90cf176a99912596f779",
        ),
        (
            "transformers-5.23",
            "noul, true",
            121,
            "bd5c4c85cd84ede757e93968a40f0b944ae91ae4d6e878130782699b77636798",
        ),
        (
            "transformers-5.23",
            "score",
            162,
            "1bc8c843d042fdf7bb47f1defafb2c67fac9ab7b38aceb5a1c630d7f9e02ccb1",
        ),
        (
            "sglang-1",
            "choice",
            166,
            "4507f103b749eb5fa83329a549860a7618e635d5a741fcca26d6b80c6470936d",
        ),
        (
            "sglang-1",
            "noul",
            121,
            "961b712d968d90f957c8d1f6b5fb8fdb1c91d423fdabbcc8b68abac45243f0e4",
        ),
        (
            "sglang-1",
            "noul, true",
            146,
            "4005807f3a009ffd5781fa68f57da83f8581a5fff1ce5a4655b7c667862a00bf",
        ),
        (
            "sglang-1",
            "score",
            145,
            "9c8a89748afe8c8af2d518636a3e801876bd0495a6fc584e6e7babff52080180",
        ),
    ],
)
def test_messages_are_those_of_the_released_servers(
    layout: str, asked: str, size: int, digest: str
) -> None:
    said = message(f"{layout}:{asked.partition(',')[0]}", ASKED[asked]).encode()
    assert (len(said), hashlib.sha256(said).hexdigest()) == (size, digest)


def test_the_pull_request_of_vllm_asks_in_the_system_message_and_begins_the_reply() -> None:
    """The digest is of what its system_text (c59eeb6c) and its template (e82b4c5b) give for one question called q."""
    request = render(protocol("vllm-pr"), ASKED["choice"], (), template=ServedChat())
    system, state, begun = ServedChat.messages(request.context(proposal=request.proposals[1])) or []
    assert (len(system.content.encode()), hashlib.sha256(system.content.encode()).hexdigest()) == (
        308,
        "679fcd45ba36962fcf0d72affdc2d3ce97afb59cdbfbd086c1215e1bc05fb712",
    )
    assert (state, begun) == (("user", json.dumps(CASE)), ("assistant", "q:"))
    assert request.continuations == (" A", " B", " C")
    spaced = item("choice", {"a": " x ", "b": {"é": 1}}, "b", state={"é": 1}, asked=" Well? ")
    system, state = (
        ServedChat.messages(
            render(protocol("vllm-pr"), spaced, (), template=ServedChat()).context()
        )
        or []
    )
    assert "\n\nQuestion q: Well?\n  A: a (x)\n  B: b ({'é': 1})\n\nReply" in system.content
    assert state.content == '{"\\u00e9": 1}'


def test_a_header_shows_the_question_only_where_no_shot_follows_it() -> None:
    with pytest.raises(ProtocolError, match="axis header .* hole {options}"):
        render(
            mmlu_protocol(header="{options}", shots=1, choices=2),
            Item("1", "x", ("a", "b"), (0,)),
            (Item("2", "y", ("a", "b"), (0,)),),
        )


@pytest.mark.parametrize("layout", ["vllm-0.32", "sglang-1", "transformers-5.23"])
@pytest.mark.parametrize("kind", KINDS)
def test_without_a_chat_the_message_is_plain_text_with_a_declared_end(
    layout: str, kind: str
) -> None:
    chat, plain = protocol(f"{layout}:{kind}"), protocol(f"{layout}-no-chat:{kind}")
    said, asked = (render(each, ASKED[kind], (), template=MessageAlone()) for each in (chat, plain))
    assert asked.context() == said.context() + "\nAnswer:"
    assert asked.continuations == tuple(f" {label}" for label in said.continuations)
    assert {axes for axes, _ in path(chat, plain)} <= {
        ("chat",),
        ("template",),
        ("question",),
        ("continuation",),
        ("chat", "template"),
    }


def test_a_question_in_a_system_text_that_a_template_leaves_out_is_refused() -> None:
    class Silent(ServedChat):
        takes_system = False

    refused = no_chat(replace(protocol("vllm-pr"), boundary="joint"), "m", Silent())
    assert refused is not None
    assert "of m takes no" in refused


def test_states_and_descriptions_that_are_no_texts_are_written_as_each_server_does() -> None:
    """A text stays as it is, though it may look like JSON: a string and an object are two states."""
    nested = item("choice", {"a": {"x": [1, "é"]}, "b": None}, "b", state={"n": 1.5, "ß": None})
    assert message("vllm-0.32:choice", nested).startswith('{"n": 1.5, "ß": null}\n\n')
    assert "A: a - {'x': [1, 'é']}\nB: b\n" in message("vllm-0.32:choice", nested)
    assert message("sglang-1:choice", nested).startswith('{"n":1.5,"ß":null}\n\n')
    assert 'A: a - {"x":[1,"é"]}\n' in message("sglang-1:choice", nested)
    assert 'A. a: {"x": [1, "é"]}\nB. b\n' in message("transformers-5.23:choice", nested)
    said = item("noul", None, "yes", state='{"n":  1}')
    for layout in ("vllm-0.32", "sglang-1", "transformers-5.23"):
        assert message(f"{layout}:noul", said).startswith('{"n":  1}\n\n')


def test_any_multiple_choice_question_is_a_decision_by_names_or_by_letters() -> None:
    """EvalScope's letters with texts, through vLLM's layout, show every letter twice."""
    plain = Item("1", "Which is blue?", ("sky", "grass", "sky"), (0,))
    by_letter, by_name = (
        message(name, plain) for name in ("evalscope-mcq+vllm-0.32", "vllm-0.32:choice")
    )
    start = (
        '{"question": "Which is blue?"}\n\nQuestion: Which option correctly answers `question`?\n'
    )
    end = "Answer with the letter of one option only."
    assert by_letter == f"{start}A: A - sky\nB: B - grass\nC: C - sky\n{end}"
    assert by_name == f"{start}A: sky\nB: grass\nC: sky\n{end}"
    steps = path(protocol("evalscope-mcq+vllm-0.32"), protocol("vllm-0.32:choice"))
    assert [axes for axes, _ in steps] == [("option",), ("described",)]


def test_d1_reads_codes_of_two_spellings_and_answers_of_three() -> None:
    state = '{\n  "question": "Which gas do plants take in?",\n  "n": 3\n}\n\n\nQUESTION:\nWhich one is right?'
    named = item("choice", {"carbon_dioxide": None, "oxygen": "O2"}, "oxygen")
    assert message("liquid-d1:choice", named) == (
        f"{state}\n\nOptions:\nA carbon dioxide\nB O2\n\nReply with the option code only."
    )
    assert message("liquid-d1:noul", ASKED["noul"]) == f"{state}\n\nReply with yes or no only."
    assert message("liquid-d1:noul", ASKED["noul, true"]) == (
        f"{state}\nYes: the gas is taken in\nNo: None\n\nReply with yes or no only."
    )
    assert message("liquid-d1:score", ASKED["score"]) == (
        f"{state}\n\n0 bad\n1 fair\n2 good\n\nReply with a single digit 0-2 only."
    )
    shown = {
        kind: render(protocol(f"liquid-d1:{kind}"), ASKED[kind], ()).parts[1]
        for kind in ("choice", "noul")
    }
    assert shown == {"choice": ("B", " B"), "noul": ("no", "No", "NO")}
    with pytest.raises(DataError, match="options by letters, .* d1"):
        message("liquid-d1:choice", item("choice", {"b": None, "a": None}, "a"))


LAYOUTS = ("vllm-0.32", "sglang-1", "transformers-5.23")


@pytest.mark.parametrize("kind", KINDS)
def test_one_layout_becomes_another_by_one_change_at_a_time(kind: str) -> None:
    for start, end in zip(LAYOUTS, (*LAYOUTS[1:], LAYOUTS[0]), strict=True):
        left, right = protocol(f"{start}:{kind}"), protocol(f"{end}:{kind}")
        assert {len(axes) for axes, _ in path(left, right)} == {1}
    aliases = path(protocol("vllm-0.32:noul"), protocol("vllm-02cc9cd5"))
    assert [axes for axes, _ in aliases] == [("option",), ("reading",), ("continuation",)]
    assert message("vllm-02cc9cd5", ASKED["noul"]).endswith("?\nAnswer with yes or no only.")


def test_a_changed_order_is_shown_wherever_the_options_stand_and_labels_follow_them() -> None:
    for name in ("vllm-0.32:choice", "vllm-pr", "transformers-5.23:choice"):
        given, changed = (
            render(each, ASKED["choice"], (), template=ServedChat())
            for each in (protocol(name), one(f"decision/{name}@prepare=reversed").protocol)
        )
        shown = [
            [line for line in each.context().split("\\n") if re.match(r" *[A-C][.:] ", line)]
            for each in (given, changed)
        ]
        named = [[re.sub(r"^ *[A-C][.:] ", "", line) for line in own] for own in shown]
        assert len(named[0]) == 3
        assert named[1] == named[0][::-1]
        assert changed.continuations == given.continuations[::-1]
        assert (changed.gold, changed.options) == (given.gold, given.options)


def test_orders_of_the_options_take_their_descriptions_with_them() -> None:
    turned = render(replace(protocol("vllm-0.32:choice"), views="cyclic"), ASKED["choice"], ())
    assert [view.query.split("\n")[3:6] for view in turned.views] == [
        ["A: oxygen - O2", "B: helium", "C: carbon dioxide"],
        ["A: helium", "B: carbon dioxide", "C: oxygen - O2"],
    ]
    empty = replace(protocol("vllm-0.32:choice"), views="content-free", calibration="contextual")
    assert "A: N/A - N/A\n" in render(empty, ASKED["choice"], ()).views[0].query


@pytest.mark.parametrize(
    ("asked", "message_"),
    [
        (
            item("choice", GASES, "oxygen", asked=None),
            "has no instructions",
        ),
        (
            Item("1", "?", ("true", "false"), (0,), fields={KIND: "noul", STATE: '""'}),
            "must be yes and",
        ),
        (
            Item("1", "?", ("a", "b"), (0,), fields={STATE: "{"}),
            f"the field {STATE} or {DESCRIPTIONS} is no JSON",
        ),
    ],
)
def test_what_a_layout_can_not_show_is_refused(asked: Item, message_: str) -> None:
    name = "vllm-0.32:noul" if asked.fields.get(KIND) == "noul" else "vllm-0.32:choice"
    with pytest.raises(DataError, match=message_):
        message(name, asked)


def test_levels_beyond_the_labels_are_refused_and_descriptions_need_options() -> None:
    with pytest.raises(DataError, match="has 11 choices, the protocol has 10 letters"):
        message("vllm-0.32:score", item("score", [f"level {number}" for number in range(11)]))
    with pytest.raises(
        ProtocolError, match="described is '{description}'.* question has no {options}"
    ):
        mmlu_protocol(question="{question}", described="{description}")


def test_a_protocol_asks_its_kind_alone_and_as_many_choices_as_it_says() -> None:
    data = Dataset("mixed", {"test": tuple(replace(each, id=name) for name, each in ASKED.items())})

    def asked(recipe: Protocol) -> list[str]:
        items = data.splits["test"]
        return [each.item.id for each in TemplateSource(recipe, data).requests("gas", items)]

    assert asked(protocol("vllm-0.32:noul")) == ["noul", "noul, true"]
    assert asked(protocol("vllm-0.32:score")) == ["score"]
    assert asked(replace(protocol("vllm-0.32:choice"), choices=4)) == []
    assert asked(replace(protocol("vllm-0.32:choice"), choices=3)) == ["choice"]
    assert len(asked(replace(protocol("vllm-0.32:choice"), kind="any"))) == 4


@pytest.mark.costly("a run of a fake")
def test_a_run_counts_each_kind_apart_and_names_protocols_that_have_no_item(tmp_path: Path) -> None:
    data = Dataset("mixed", {"test": tuple(replace(each, id=name) for name, each in ASKED.items())})
    plain = {"chat": "none", "template": None, "boundary": "joint"}
    recipes = {name: replace(protocol(f"vllm-0.32:{name}"), **plain) for name in KINDS}
    recipes["five"] = replace(recipes["choice"], choices=5)
    with pytest.warns(UserWarning, match="five is refused: .* kind choice with 5"):
        run = evaluate(model="fake:hash", data=data, protocols=recipes, out=tmp_path / "run")
    rows = run.report().to_pylist()
    assert {(row["protocol"], row["n"], row["missing"]) for row in rows} == {
        ("choice", 1, 0),
        ("noul", 2, 0),
        ("score", 1, 0),
    }
    with pytest.raises(DataError, match="no protocol fits"):
        evaluate(
            model="fake:hash", data=data, protocols={"five": recipes["five"]}, out=tmp_path / "none"
        )


CASES = "decisions/typed_decisions.test.first25.jsonl"


def test_a_case_of_five_questions_is_five_items_of_one_cluster(shared_data: Path) -> None:
    data = open_dataset(shared_data / CASES)
    items = list(data.splits["test"])
    assert (len(items), len({each.subject for each in items})) == (500, 100)
    assert set(Counter(each.subject for each in items).values()) == {5}
    assert Counter(each.fields[KIND] for each in items) == {
        "score": 200,
        "choice": 150,
        "noul": 150,
    }
    raw = [
        json.loads(line) for line in (shared_data / CASES).read_text(encoding="utf-8").splitlines()
    ]
    first = {
        name: next(each for each in items if each.id == f"{raw[0]['id']}/{name}")
        for name in raw[0]["questions"]
    }
    assert json.loads(first["action"].fields[STATE]) == raw[0]["state"]
    for each in raw:
        for name, gold in each["gold"].items():
            own = next(one for one in items if one.id == f"{each['id']}/{name}")
            keys = {"yes": "true", "no": "false"} if gold["type"] == "noul" else {}
            names = (
                [str(place) for place in range(len(own.choices))]
                if gold["type"] == "score"
                else own.choices
            )
            assert json.loads(own.fields["human_counts"]) == [
                gold["probabilities"][keys.get(k, k)] for k in names
            ]
            assert [keys.get(names[place], names[place]) for place in own.gold] == [gold["label"]]


def evalscope(folder: Path, *lines: Mapping[str, Any]) -> Path:
    path = folder / "default_test.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def line(kind: str, criteria: Any, expected: Any, **more: Any) -> dict[str, Any]:
    question = {"type": kind, "instructions": "Well?", "criteria": criteria}
    return {"state": {"n": 1.50}, "question": question, "expected": expected, **more}


def test_lines_of_evalscope_say_the_answer_in_any_of_its_spellings(tmp_path: Path) -> None:
    rows = [
        line("noul", None, spelled, id=f"n{place}")
        for place, spelled in enumerate((True, "yes", "false", "no"))
    ]
    rows += [line("score", ["low", "high"], 1, id="s", group="case", family="f", tier="hard")]
    rows += [line("choice", {"a": "x", "b": None}, "b")]
    items = list(open_dataset(evalscope(tmp_path, *rows)).splits["test"])
    assert [each.gold for each in items] == [(0,), (0,), (1,), (1,), (1,), (1,)]
    assert [each.subject for each in items] == ["n0", "n1", "n2", "n3", "case", "test/5"]
    assert (items[4].fields["family"], items[4].fields[STATE], items[5].id) == (
        "f",
        '{"n": 1.5}',
        "test/5",
    )


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (line("box", None, 1), "type 'box'; .* choice, noul, score"),
        (line("choice", ["a", "b"], "a"), "criteria of a choice"),
        (line("choice", {"a": None, "b": None}, "c"), "the answer 'c'"),
        (line("choice", {"a": None}, "a"), "1 choice; .* at least 2"),
        (line("score", {"0": "x"}, 0), "criteria of a score"),
        (line("score", ["x", "y"], 2), "the answer '2'"),
        (line("score", "low", 0), "criteria of a score"),
        (
            dict(line("noul", None, True), question={"type": "noul", "instructions": 5}),
            "instructions must be",
        ),
        (
            line("noul", {"yes": "x"}, True),
            "criteria of a noul",
        ),
        (line("noul", None, True, state=3), "the state must be"),
        (line("noul", None, None), "no answers"),
    ],
)
def test_a_question_that_can_not_be_asked_says_why(
    tmp_path: Path, row: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DataError, match=reason):
        open_dataset(evalscope(tmp_path, row))


def test_a_later_row_without_a_state_is_named_or_skipped(tmp_path: Path) -> None:
    whole = line("noul", None, True)
    rows = evalscope(
        tmp_path, whole, {name: value for name, value in whole.items() if name != "state"}, whole
    )
    with pytest.raises(DataError, match="line 2.*the state must be"):
        open_dataset(rows)
    assert len(list(open_dataset(rows, on_bad_item="skip").splits["test"])) == 2


def test_probabilities_of_a_case_must_be_one_per_option(tmp_path: Path) -> None:
    questions = {"q": {"type": "noul", "instructions": "?"}}
    wrong = {
        "no probability for 'no'": {"true": 1.0},
        "probabilities have 'maybe': 0.5": {"true": 0.5, "maybe": 0.5},
        "probabilities sum to 0.98, not 1": {"true": 0.5, "false": 0.48},
        "probability of 'false', -0.5, is below 0": {"true": 1.5, "false": -0.5},
        "'yes' is a second": {
            "true": 0.5,
            "yes": 0.5,
            "no": 0.0,
        },
    }
    for reason, shares in wrong.items():
        gold = {"q": {"label": "true", "probabilities": shares}}
        case = {
            "id": "1",
            "state": "s",
            "questions": json.dumps(questions),
            "gold": json.dumps(gold),
        }
        with pytest.raises(DataError, match=f"question q: .*{reason}"):
            open_dataset(evalscope(tmp_path, case))


def plain_label(tokens: Any, context: str, label: str) -> list[int] | None:
    """As vLLM's release finds it: the ids after the last special one, decoded, with the label, must grow by one."""
    ids = tokens.encode([context], special=True)[0]
    special = [place for place, token in enumerate(ids) if not tokens.token_bytes[token]]
    end = ids[special[-1] + 1 :] if special else ids
    grown = tokens.encode([tokens.decode(end) + label], special=False)[0]
    return (
        [int(grown[-1])]
        if grown[:-1].tolist() == end.tolist() and len(grown) == len(end) + 1
        else None
    )


@pytest.mark.costly("real tokenizers")
@pytest.mark.parametrize(
    "name", ["tokenizers/gpt2", "tokenizers/mistral-7b-v0.2", "tokenizers/gpt-neox-20b"]
)
def test_labels_are_the_one_token_by_which_the_end_of_the_prompt_grows(name: str) -> None:
    tokens = tokenizer(name)
    for context in (
        "Say it.\n",
        "Say: ",
        "Say it.</s>\n",
        "Say it.<|im_end|>\n<|im_start|>assistant\n",
    ):
        for labels in (
            list("ABCXYZ"),
            ["yes", "no"],
            ["Yes", "No"],
            list("0123456789"),
            ["AA", "AB"],
        ):
            asked = choice_prompts(tokens, "label", "default", context, labels, [0])
            expected = [plain_label(tokens, context, label) for label in labels]
            assert [each.span and each.span.continuation.tolist() for each in asked] == expected
            alone = choice_prompts(tokens, "label-alone", "default", context, labels, [0])
            ids = [each.tolist() for each in tokens.encode(labels, special=False)]
            assert [each.span and each.span.continuation.tolist() for each in alone] == [
                own if len(own) == 1 else None for own in ids
            ]
            for each in (*asked, *alone):
                assert each.span is not None or "no single token" in (each.missing or "")
                context_ids = tokens.encode([context], special=True)[0]
                assert each.span is None or np.array_equal(each.span.context, context_ids)


def test_labels_that_share_a_token_are_refused() -> None:
    tokens = tokenizer("tokenizers/bert-base-uncased")
    first, second, third = choice_prompts(tokens, "label-alone", "none", "x", ["A", "a", "b"], [])
    assert first.missing == Gist("label 'A' ... 'a'")
    assert (second.span, third.missing) == (None, None)


def test_where_a_server_renders_the_chat_no_label_is_known() -> None:
    refused = no_chat(protocol("sglang-1:noul"), "m", ServedChat()) or ""
    assert refused == Gist("server of m ... chat")
    assert no_chat(replace(protocol("sglang-1:noul"), boundary="joint"), "m", ServedChat()) is None


def test_prompts_prints_the_message_where_no_model_is_named(tmp_path: Path) -> None:
    file = evalscope(tmp_path, line("choice", {"a": "x", "b": None}, "b", id="1"))
    printed = choicewise(
        "prompts", "--data", file, "--protocol", "decision/vllm-0.32:choice", code=0
    )
    (row,) = map(json.loads, printed.stdout.splitlines())
    assert row["context"].endswith(
        "\n\nQuestion: Well?\nA: a - x\nB: b\nAnswer with the letter of one option only."
    )
    assert (row["continuations"], row["gold"]) == (["A", "B"], [1])
    assert "Add --model MODEL" in printed.stderr
    turns = choicewise("prompts", "--data", file, "--protocol", "options/cloze+turns:sum", code=2)
    assert "add --model MODEL" in turns.stderr
