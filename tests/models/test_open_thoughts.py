"""Three templates as published models have them: what they leave open, how they are told not to, how they close it."""

import shutil
from functools import cache
from pathlib import Path

import pytest

from choicewise import evaluate
from choicewise.errors import ModelError
from choicewise.models.load import load_model
from choicewise.tokens.chat_template import ChatTemplate, Message
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.protocols import mmlu_protocol
from tests.paths import ROOT

MODEL = ROOT / "src" / "choicewise" / "bundled" / "models" / "merrow-bpe-512"
TURNS = (
    "{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.role == 'assistant' %}"
    "{%- if message.reasoning_content is string %}"
    "{{ '<think>\\n' + message.reasoning_content.strip('\\n') + '\\n</think>\\n\\n' }}{%- endif %}"
    "{%- endif %}{{ message.content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
)
CLOSED, OPEN, END = (
    "{{ '<think>\\n\\n</think>\\n\\n' }}",
    "{{ '<think>\\n' }}",
    "{%- endif %}{%- endif %}",
)
TEMPLATES = {
    "Qwen3": f"{TURNS}{{%- if enable_thinking is defined and enable_thinking is false %}}{CLOSED}{END}",
    "Qwen3.5, thinking unless false": (
        f"{TURNS}{{%- if enable_thinking is defined and enable_thinking is false %}}{CLOSED}{{%- else %}}{OPEN}{END}"
    ),
    "Qwen3.5, only if true": (
        f"{TURNS}{{%- if enable_thinking is defined and enable_thinking is true %}}{OPEN}{{%- else %}}{CLOSED}{END}"
    ),
}
TAIL, OPENED, NOT_OPENED = "<|im_start|>assistant\n", "<think>\n", "<think>\n\n</think>\n\n"
TAILS = {
    "Qwen3": {None: "", True: "", False: NOT_OPENED},
    "Qwen3.5, thinking unless false": {None: OPENED, True: OPENED, False: NOT_OPENED},
    "Qwen3.5, only if true": {None: NOT_OPENED, True: OPENED, False: NOT_OPENED},
}
R1 = (
    "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}<|Assistant|><think>\n"
)


@cache
def template(name: str) -> ChatTemplate:
    return ChatTemplate(TEMPLATES[name], {})


@pytest.mark.costly("each of three templates runs in a process of its own")
@pytest.mark.parametrize("thinking", [None, True, False])
@pytest.mark.parametrize("name", TEMPLATES)
def test_what_a_template_leaves_open_and_how_it_closes_it(name: str, thinking: bool | None) -> None:
    chat, told = template(name), {} if thinking is None else {"enable_thinking": thinking}
    tail = TAILS[name][thinking]
    text = chat.render([Message("user", "Which?")], told)
    assert text.endswith(f"<|im_end|>\n{TAIL}{tail}")
    assert chat.opens(told) == ("<think>" if tail == OPENED else "")
    assert chat.opens(told, "The best answer is") == ""
    assert chat.closing(told) == "\n</think>\n\n"
    assert chat.may_think
    if tail == OPENED:  # closed, it is the prompt of a model that is told not to think
        assert text + chat.closing(told) == chat.render(
            [Message("user", "Which?")], {"enable_thinking": False}
        )


@pytest.mark.costly("a template runs in a process of its own")
def test_a_template_that_does_not_show_how_a_thought_ends_closes_none() -> None:
    chat = ChatTemplate(R1, {})
    assert chat.opens() == "<think>"
    with pytest.raises(ModelError, match="how a thought ends"):
        chat.closing()


@pytest.mark.costly("a model is read, and templates run in processes of their own")
def test_letters_of_a_real_model_are_refused_or_closed_by_the_templates_own_bytes(
    tmp_path: Path,
) -> None:
    folder, data = tmp_path / "model", write_mmlu(tmp_path / "data", subjects=("tides",))
    shutil.copytree(MODEL, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATES["Qwen3.5, thinking unless false"])
    model = load_model(folder)
    asked = {"model": model, "data": data, "limit": 1}
    letters = {"shots": 0, "chat": "message"}
    with pytest.raises(ModelError, match="in an open thought"):
        evaluate(**asked, protocols={"p": mmlu_protocol(**letters)}, out=tmp_path / "refused")
    told = {"closed": {"thought": "close"}, "told": {"template": "enable_thinking=false"}}
    protocols = {name: mmlu_protocol(**letters, **axes) for name, axes in told.items()}
    run = evaluate(**asked, protocols=protocols, out=tmp_path / "run")
    assert len({row.identity.t for row in run.rows()}) == 1
    contexts = {row["context"] for row in run.tables.requests.to_pylist()}
    assert len(contexts) == 1
    assert contexts.pop().endswith(TAIL + NOT_OPENED)
    text = {"reading": "generate", "score": "none", "decision": "inspect@0.3.264", "ties": "none"}
    limited = mmlu_protocol(**letters, **text, metric="exact_match", new_tokens=4, thought_tokens=6)
    written = evaluate(**asked, protocols={"p": limited}, out=tmp_path / "written")
    (row,) = written.tables.observations.to_pylist()
    assert (row["opened"], row["forced"], "\n</think>\n\n" in row["text"]) == (
        "<think>",
        True,
        True,
    )
    assert (
        len(row["tokens"])
        == 6 + len(model.tokenizer.encode(["\n</think>\n\n"], special=False)[0]) + 4
    )
    assert row["finish"] == "length"
