"""Chat templates that attack: each is an error within seconds, in bounded memory, and does nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from choicewise.errors import ModelError
from choicewise.tokens.chat_template import ChatTemplate, Message

HELLO, ECHO = [Message("user", "hi")], "{{ messages[0].content }}"
ATTACKS = {
    "loops": ("{% for i in range(99999) %}" * 3 + "{% endfor %}" * 3, "takes more than its time"),
    "powers": ("{{ 9 ** messages[0].content | length ** 99 ** 9 }}{{ 9 ** (9 ** (10 - 1)) }}", "takes more than"),
    "multiplied": ("{{ 'a' * 10 ** 10 }}", "MB of memory"),
    "multiplied later": ("{{ messages[0].content * 10 ** 10 }}", "MB of memory"),
    "doubled": (
        "{% set s = namespace(x='letters') %}{% for i in range(99) %}{% set s.x = s.x ~ s.x %}{% endfor %}{{ s.x }}",
        "MB of memory",
    ),
    "centred": ("{{ messages[0].content | center(10 ** 10) }}", "MB of memory"),
    "formatted": ("{{ '%9000000000d' | format(1) }}", "MB of memory"),
    "lists": ("{% set x = [[]] * 10 ** 10 %}", "MB of memory"),
    "long": ("{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}", "gives more than 10000000 characters"),
    "class": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "SecurityError"),
    "globals": ("{{ cycler.__init__.__globals__.os.system('touch SENTINEL') }}", "SecurityError"),
    "attribute": ("{{ messages | map(attribute='__class__.__base__.__subclasses__') | list }}", "SecurityError"),
    "format string": ("{{ '{0.__class__.__init__.__globals__}'.format(messages) }}", "SecurityError"),
    "changes": ("{{ messages.append(messages) }}", "SecurityError"),
    "deep": ("{{" + "(" * 5000 + "1" + ")" * 5000 + "}}", "fails|ended|calls itself"),
    "recursion": ("{% macro x() %}{{ x() }}{% endmacro %}{{ x() }}", "fails|ended|calls itself"),
    "files": ("{% include '/etc/passwd' %}", "fails"),
    "syntax": ("{% if", "can't be used"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_an_error(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text, reason = ATTACKS[name]
    with pytest.raises(ModelError, match=reason):
        ChatTemplate(text, {}).render(HELLO)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is bounded on Linux alone")
def test_the_process_has_bounded_memory_can_write_no_file_and_sees_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    renderer = ChatTemplate(ECHO, {})
    assert renderer.render(HELLO) == "hi"
    about = Path(f"/proc/{renderer._process.pid}")
    limits = {line[:26].strip(): line[26:].split() for line in (about / "limits").read_text().splitlines()}
    assert int(limits["Max data size"][0]) < ChatTemplate.limits.memory + (1 << 30)
    assert limits["Max file size"][0] == "0"
    assert b"hf_secret" not in (about / "environ").read_bytes()


def test_a_template_that_failed_fails_again_in_a_new_process() -> None:
    template = ChatTemplate("{{ 'a' * 10 ** 10 if messages[0].content == 'big' else messages[0].content }}", {})
    assert template.render([Message("user", "small")]) == "small"
    with pytest.raises(ModelError, match="memory"):
        template.render([Message("user", "big")])
    assert template.render([Message("user", "another")]) == "another"


def test_the_process_ends_with_its_template_and_one_that_is_gone_is_an_error() -> None:
    renderer = ChatTemplate(ECHO, {})
    renderer.render(HELLO)
    process = renderer._process
    assert process.poll() is None
    del renderer
    assert process.wait(timeout=60) != 0
    renderer = ChatTemplate(ECHO, {})
    renderer.render(HELLO)
    renderer._process.kill()
    renderer._process.wait()
    with pytest.raises(ModelError, match="chat template ended"):
        renderer.render([Message("user", "another")])


def test_texts_of_every_kind_come_back_as_they_are() -> None:
    template = ChatTemplate(ECHO, {})
    for text in ("", "\n", "\r\n\x00", "é\u2028\U0001f469", '"\\', "x" * 1_000_000):
        assert template.render([Message("user", text)]) == text


def test_rendering_imports_no_torch_here() -> None:
    line = "from choicewise.tokens.chat_template import ChatTemplate, Message; import sys; print("
    line += f"ChatTemplate({ECHO!r}, {{}}).render([Message('user', 'hi')]), "
    line += "{'torch', 'transformers', 'jinja2'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "hi set()"


LEFT_OUT = "leaves out what the user says"
WRONG = dict.fromkeys(("", "Hello", "{{ lipsum.__globals__ }}", "{{ messages[0].role }}"), LEFT_OUT)
WRONG[ECHO + "{{ '\\ud800' }}"] = "halves of characters"


@pytest.mark.parametrize("template", WRONG)
def test_a_template_that_leaves_out_the_question_or_gives_halves_of_characters_is_an_error(template: str) -> None:
    with pytest.raises(ModelError, match=WRONG[template]):
        ChatTemplate(template, {}).render([Message("user", "What?")])
