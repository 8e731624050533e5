"""Chats: messages and continuations as the released harness makes them, and what comes of them in a run."""

import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers

from choicewise import Run, evaluate, load_model, open_run
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import ModelError, ProtocolError, StoreError, UsageError
from choicewise.models.local.files import LONGEST, read_chat_template
from choicewise.protocols.catalogue import chat_name, entry, in_chat, plain_name, resolve
from choicewise.requests.prompters import add_prompts
from choicewise.requests.render import TemplateSource
from choicewise.requests.request import PreparedBlock, Request
from choicewise.results.rows import run_id
from choicewise.tokens.chat_template import ChatTemplate, Message
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.protocols import mmlu_protocol, requests
from tests.paths import GOLDENS, ROOT

MODEL = ROOT / "src" / "choicewise" / "bundled" / "models" / "merrow-bpe-512"
GOLDENS = GOLDENS / "chat"
TEMPLATES = ("chatml", "headers", "no-system")
ROWS = json.loads((GOLDENS / "rows.json").read_text(encoding="utf-8"))
HEADER = "The following are multiple choice questions (with answers) about {subject}.\n\n"
GAP = {
    "prepare": "gap",
    "question": "{before}",
    "answer": "{choice} {after}",
    "proposal": "{choice}",
    "choices": 2,
}
PROTOCOLS = {
    "letters": mmlu_protocol(header=HEADER, strip="question"),
    "begun": mmlu_protocol(strip="question", proposal="The best answer is"),
    "gap": mmlu_protocol(benchmark="any", continuation=" {after}", **GAP),
}


def golden(name: str) -> dict[str, Any]:
    return json.loads((GOLDENS / f"{name}.json").read_text(encoding="utf-8"))


CHATML = ChatTemplate(golden("chatml")["template"], {})
REFUSING = golden("no-system")["template"]
LETTERED = [
    Item(str(number), row["question"], tuple(row["choices"]), (row["answer"],), row["subject"])
    for number, row in enumerate(ROWS["letters"])
]
GAPS = [
    Item(
        str(number),
        row["sentence"],
        (row["option1"], row["option2"]),
        (int(row["answer"]) - 1,),
        "mill_lore",
    )
    for number, row in enumerate(ROWS["gap"])
]


def dataset(items: list[Item]) -> Dataset:
    return Dataset("mill", {"dev": tuple(items[:-2]), "test": tuple(items[-2:])})


DATA = {"letters": dataset(LETTERED), "begun": dataset(LETTERED), "gap": dataset(GAPS)}
CASES = [(name, case) for name in TEMPLATES for case in golden(name)["cases"]]


@pytest.mark.parametrize(
    ("name", "case"),
    CASES,
    ids=[
        f"{name}-{each['task']}-{each['shots']}-{each['chat']}-{each['system'] is not None}"
        for name, each in CASES
    ],
)
def test_chats_are_those_of_the_harness(name: str, case: dict[str, Any]) -> None:
    protocol = replace(
        PROTOCOLS[case["task"]], **{axis: case[axis] for axis in ("shots", "chat", "system")}
    )
    template = template_of(golden(name)["template"])
    asked = list(requests(protocol, DATA[case["task"]], "mill_lore", template=template))
    assert len(asked) == len(case["requests"]) == 2
    for request, sent in zip(asked, case["requests"], strict=True):
        contexts = [request.context(proposal=text) for text in request.proposals]
        contexts = contexts or [request.context()] * len(request.continuations)
        assert [list(pair) for pair in zip(contexts, request.continuations, strict=True)] == sent


@cache
def template_of(text: str) -> ChatTemplate:
    """One process for each of the templates, not for each of the cases."""
    return ChatTemplate(text, {"bos_token": "<s>", "eos_token": "</s>"})


@pytest.mark.costly(
    "the tokenizer of transformers is read, and templates run in processes of their own"
)
def test_rendering_is_that_of_transformers() -> None:
    """Only the day is fixed, and chance."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    tokenizer.chat_template = (
        "{{ bos_token }}{%- for m in messages -%}[{{ m.role | upper }}] {{ m.content }}{{ eos_token }}\n"
        "{%- if loop.index0 > 7 %}{% break %}{% endif %}{%- endfor -%}{{ messages | tojson }}"
        "{% if tools %}no{% endif %}{% if add_generation_prompt %}[SAY]{% endif %}"
    )
    ours = ChatTemplate(tokenizer.chat_template, {"bos_token": "<s>", "eos_token": "</s>"})
    chats = [
        [Message("user", "<b> & “q” {{ 1 }} \n x  ")],
        [
            Message("system", "s"),
            Message("user", "u"),
            Message("assistant", "a"),
            Message("user", "v"),
        ],
        [Message("user", "u")] * 12,
    ]
    for chat in chats:
        told = [message._asdict() for message in chat]
        assert ours.render(chat) == tokenizer.apply_chat_template(
            told, tokenize=False, add_generation_prompt=True
        )
    begun = [Message("user", "u"), Message("assistant", "It is ")]
    told = [message._asdict() for message in begun]
    text = tokenizer.apply_chat_template(told, tokenize=False, continue_final_message=True)
    plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    assert text.startswith("<s>[USER] u</s>")
    assert ChatTemplate(plain, {}).render(begun) == "user: u\nassistant: It is "


@pytest.mark.costly("each of three templates runs in a process of its own")
def test_the_day_and_chance_are_fixed_and_texts_that_are_ignored_or_refused_are_known() -> None:
    text = "{{ strftime_now('%d %b %Y') }} {{ range(1000) | random }} "
    template = ChatTemplate(
        text + "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}", {}
    )
    first, second = (template.render([Message("user", word)]) for word in ("one", "two"))
    assert first.startswith("26 Jul 2024 ")
    assert first.removesuffix("one") == second.removesuffix("two")
    assert [each.takes_system for each in (template, template_of(REFUSING), CHATML)] == [
        False,
        False,
        True,
    ]
    template = template_of(REFUSING)
    with pytest.raises(ModelError, match="refuses the messages \\(Roles must alternate\\)"):
        template.render([Message("system", "s"), Message("assistant", "a"), Message("user", "u")])


def test_shots_that_do_not_fit_are_dropped_with_their_turns() -> None:
    class Answerer:
        tokenizer = ByteTokenizer()
        window = 700

    Answerer.tokenizer.chat = CHATML
    protocol = mmlu_protocol(header=HEADER, strip="question", shots=4, chat="turns")
    source = TemplateSource(protocol, DATA["letters"], CHATML)
    asked = list(source.requests("mill_lore", DATA["letters"].rows("test", "mill_lore")))
    assert all(isinstance(each, Request) for each in asked)
    block = PreparedBlock()
    add_prompts(block, protocol, asked, Answerer())
    for row, request in zip(block.requests, asked, strict=True):
        assert 0 < row.shots < 4
        assert (row.shots + row.shots_dropped, row.context) == (4, request.context(row.shots))
        assert row.context.count("<|im_start|>assistant") == row.shots + 1


def test_views_and_proposals_render_the_whole_chat_again_and_continuations_keep_their_space() -> (
    None
):
    views = mmlu_protocol(views="cyclic", shots=1, chat="message")
    (first, _) = requests(views, DATA["letters"], "mill_lore", template=CHATML)
    other = replace(first, query=first.views[0].query).context()
    assert other == first.context().replace(first.query, first.views[0].query)
    assert other.endswith("<|im_end|>\n<|im_start|>assistant\n")
    asked = mmlu_protocol(proposal="Is it {choice}?", continuation=" yes", chat="turns", shots=0)
    (first, _) = requests(asked, DATA["letters"], "mill_lore", template=CHATML)
    shown = first.context(proposal=first.proposals[2])
    assert shown.endswith("Is it a red kite of jar 4?<|im_end|>\n<|im_start|>assistant\n")
    assert first.continuations == ("yes",) * 4
    sampling = {
        "new_tokens": 4,
        "chains": 1,
        "seed": 1,
        "fit": "refuse",
        "chat": "turns",
        "shots": 0,
    }
    chain = mmlu_protocol(
        reading="chain-of-thought", proposal="\nSo it is", score="vote", **sampling
    )
    (first, _) = requests(chain, DATA["letters"], "mill_lore", template=CHATML)
    assert first.continuations[0] == " A"


@pytest.mark.parametrize(
    ("axes", "reason"),
    [
        ({"system": "x"}, "chat is none"),
        (
            {"chat": "turns", "reading": "noisy-channel", "proposal": "{choice}", "shots": 0},
            "use chat none",
        ),
        (
            {"chat": "turns", "reading": "spellings", "continuation": " {letter}\n{letter}"},
            "which a chat drops",
        ),
    ],
)
def test_chats_that_mean_nothing_are_refused(axes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        mmlu_protocol(**axes)


def test_names_of_chats_are_selectors() -> None:
    assert chat_name("mmlu/harness-v0:sum", "turns") == "mmlu/harness-v0+turns:sum"
    assert plain_name("mmlu/harness-v0+turns:sum") == ("mmlu/harness-v0:sum", "turns")
    assert plain_name("mmlu/original+turnstile") == ("mmlu/original+turnstile", None)
    named = resolve("mmlu/harness-v0")
    chats = in_chat(named, "message", "Be brief.")
    assert list(chats) == [chat_name(name, "message") for name in named]
    assert {(each.chat, each.system) for each in chats.values()} == {("message", "Be brief.")}
    assert resolve("mmlu/harness-v0+message") == in_chat(named, "message")
    (single,) = resolve("mmlu/harness-v0+turns:sum")
    assert (single, entry("mmlu/harness-v0+turns:sum").name) == (
        "mmlu/harness-v0+turns:sum",
        "mmlu/harness-v0",
    )
    assert list(resolve("mmlu/original..mmlu/original+turns")) == [
        "mmlu/original",
        "mmlu/original+turns",
    ]
    assert in_chat(chats, "turns", "Other.") == chats
    with pytest.raises(UsageError, match="needs a chat"):
        in_chat(named, None, "Be brief.")
    with pytest.raises(ProtocolError, match="channel can't be"):
        in_chat(
            {"channel": mmlu_protocol(reading="noisy-channel", proposal="{choice}", shots=0)},
            "turns",
        )


def chat_model(folder: Path, **files: str) -> Path:
    """The smallest bundled model with a chat template, in ``chat_template.jinja`` unless ``files`` say otherwise."""
    shutil.copytree(MODEL, folder)
    for name, content in (
        files or {"chat_template.jinja": "{{ bos_token }}" + CHATML.text}
    ).items():
        (folder / name).write_text(content)
    return folder


def test_the_file_of_a_template_is_that_of_transformers(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "D"}, {"name": "rag", "template": "R"}]
    config = json.loads((MODEL / "tokenizer_config.json").read_text())

    def model(name: str, stated: Any, **files: str) -> Path:
        told = json.dumps(config | {"chat_template": stated})
        return chat_model(tmp_path / name, **{"tokenizer_config.json": told, **files})

    folders = [
        model("text", "T"),
        model("named", named),
        model("file", "T", **{"chat_template.jinja": "F"}),
    ]
    templates = [read_chat_template(folder) for folder in folders]
    assert [template and template.text for template in templates] == ["T", "D", "F"]
    assert templates[0] is not None
    assert templates[0].special == {"bos_token": "<s>", "eos_token": "</s>"}
    theirs = [transformers.AutoTokenizer.from_pretrained(folder) for folder in folders]
    assert ([each.get_chat_template() for each in theirs], read_chat_template(MODEL)) == (
        ["T", "D", "F"],
        None,
    )
    for stated, reason in (
        (named[1:], "none called 'default'"),
        (7, "is not a text"),
        ("x" * (LONGEST + 1), "text of at most"),
    ):
        shutil.rmtree(tmp_path / "bad", ignore_errors=True)
        with pytest.raises(ModelError, match=reason):
            read_chat_template(model("bad", stated))
    (folders[2] / "chat_template.jinja").write_text("x" * (LONGEST + 1))
    with pytest.raises(ModelError, match=r"chat_template.jinja .*1,048,577 bytes.*1,048,576"):
        read_chat_template(folders[2])


@pytest.mark.costly("four runs, and templates run in processes of their own")
def test_a_run_in_a_chat(tmp_path: Path) -> None:
    data, model = write_mmlu(tmp_path / "data", subjects=("tides",)), chat_model(tmp_path / "model")
    names = [
        "mmlu/original+turns",
        "mmlu/original+message",
        "mmlu/helm+turns",
        "mmlu/harness-v0+message:pmi-answer",
    ]

    def run(name: str, protocols: list[str]) -> Run:
        return evaluate(model=model, data=data, protocols=protocols, out=tmp_path / name, limit=1)

    chats, template = run("run", names), load_model(model).tokenizer.chat
    assert template is not None
    assert chats.manifest.model.chat == template.digest
    assert chats.observations().num_rows
    prompts = choicewise(
        "explain", tmp_path / "run", "--item", "tides/test/0", "--json", code=0
    ).stdout
    assert "<s><|im_start|>system\\nThe following are" in prompts
    assert "Answer:<|im_end|>\\n<|im_start|>assistant\\n" in prompts
    plain = run("plain", ["mmlu/original"])
    assert run_id(plain.manifest) == run_id(chats.manifest)
    (model / "chat_template.jinja").write_text(CHATML.text)
    with pytest.raises(StoreError, match="model chat is .* there and .* here"):
        run("run", names)
    assert run_id(run("other", ["mmlu/original"]).manifest) != run_id(plain.manifest)
    assert open_run(tmp_path / "run").manifest.complete


@pytest.mark.costly("two tokenizers are read, and templates run in processes of their own")
def test_a_template_that_starts_with_the_bos_gets_no_second_one(tmp_path: Path) -> None:
    """Nor do the texts around special tokens change where they are encoded in parts."""
    texts = {"with": "{{ bos_token }}" + CHATML.text, "without": CHATML.text}
    asked = {}
    for name, text in texts.items():
        folder = chat_model(tmp_path / name, **{"chat_template.jinja": text})
        add_bos(folder / "tokenizer.json")
        model = load_model(folder)
        block, protocol = PreparedBlock(), mmlu_protocol(chat="turns", shots=2)
        sent = list(requests(protocol, DATA["letters"], "mill_lore", template=model.tokenizer.chat))
        add_prompts(block, protocol, sent, model)
        assert {row.bos for row in block.spans} == {1}
        asked[name] = list(block.wanted)
    assert asked["with"] == asked["without"]


def add_bos(path: Path) -> None:
    """Let the tokenizer put its BOS before every text."""
    backend = tokenizers.Tokenizer.from_file(str(path))
    bos = backend.token_to_id("<s>")
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", bos)]
    )
    backend.save(str(path))


def test_a_model_without_a_template_is_no_chat_model(tmp_path: Path) -> None:
    data, protocols = write_mmlu(tmp_path / "data"), ["mmlu/original+turns"]
    reason = r"fake:hash can't run mmlu/original\+turns: .* chat template"
    with pytest.raises(ModelError, match=reason):
        evaluate(model="fake:hash", data=data, protocols=protocols, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.costly("two commands, and templates run in processes of their own")
def test_the_command_line_asks_in_chats(tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data", subjects=("tides",))
    model = chat_model(tmp_path / "model", **{"chat_template.jinja": REFUSING})
    line = ("--model", model, "--data", data, "--limit", "1")
    told = choicewise(
        "run",
        *line,
        "--protocol",
        "mmlu/original",
        "--json",
        "--chat",
        "turns",
        "--out",
        tmp_path / "run",
        code=0,
    )
    assert {row["protocol"] for row in json.loads(told.stdout)} == {"mmlu/original+turns"}
    assert "sent under mmlu/original+turns" in told.stderr
    first, *_ = choicewise(
        "prompts", *line, "--protocol", "mmlu/original+turns", code=0
    ).stdout.splitlines()
    assert json.loads(first)["context"].startswith("<s><turn>user\nWhich of the tides")
    assert json.loads(first)["continuations"] == ["A", "B", "C", "D"]
