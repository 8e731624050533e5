"""Answer extraction rules of other tools.

Patterns: EleutherAI/lm-evaluation-harness, lm_eval/tasks/gsm8k.py@b281b09 and lm_eval/tasks/gsm8k/gsm8k.yaml@4e7e0d4
with lm_eval/filters/extraction.py and exact_match of lm_eval/api/metrics.py.

Read at UKGovernmentBEIS/inspect_ai, solver/_multiple_choice.py, ``parse_answers`` and, before 0.3.121,
``set_choices_based_on_generated_response``: 775396c (0.3.42), e4a551f (0.3.121), 846da97 (0.3.221), and the packages
0.3.264 and 0.3.285, which read alike.  Each is the rule for one answer (``multiple_correct=False``).

Patterns and their order: open-compass/opencompass text_postprocessors.py@14ca958, first_option_postprocess.  A missing
comma there joins two patterns into one ("故选A只有B对"), so that neither is ever tried alone; it is kept, because
numbers were published with it.  The last pattern takes the first letter anywhere, the article "A" included.

Patterns and replacements: openai/simple-evals common.py@f517a91 (ANSWER_PATTERN_MULTICHOICE, as gpqa_eval.py uses it,
and MULTILINGUAL_ANSWER_PATTERN_TEMPLATE with its normalisations, as mmlu_eval.py@9768118 does).  A-D in the
source are the item's letters here, the same for four options.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

_PATTERNS = (
    *(r"答案是?\s*([@])", r"答案是?\s*：\s*([@])", r"答案是?\s*:\s*([@])", r"答案应该?是\s*([@])"),
    *(r"答案应该?选\s*([@])", r"答案为\s*([@])", r"答案选\s*([@])", r"选择?\s*([@])"),
    *(r"故选?\s*([@])只有选?项?\s?([@])\s?是?对", r"只有选?项?\s?([@])\s?是?错", r"只有选?项?\s?([@])\s?不?正确"),
    *(r"只有选?项?\s?([@])\s?错误", r"说法不?对选?项?的?是\s?([@])", r"说法不?正确选?项?的?是\s?([@])"),
    *(r"说法错误选?项?的?是\s?([@])", r"([@])\s?是正确的", r"([@])\s?是正确答案", r"选项\s?([@])\s?正确"),
    *(r"所以答\s?([@])", r"所以\s?([@][.。$]?$)", r"所有\s?([@][.。$]?$)", r"[\s，：:,]([@])[。，,\.]?$"),
    *(r"[\s，,：:][故即]([@])[。\.]?$", r"[\s，,：:]因此([@])[。\.]?$", r"[是为。]\s?([@])[。\.]?$"),
    *(r"因此\s?([@])[。\.]?$", r"显然\s?([@])[。\.]?$", r"答案是\s?(\S+)(?:。|$)", r"答案应该是\s?(\S+)(?:。|$)"),
    *(r"答案为\s?(\S+)(?:。|$)", r"[Tt]he answer is:?\s+\(?([@])\)?", r"[Tt]he answer is option:?\s+\(?([@])\)?"),
    *(r"[Tt]he correct answer is:?\s+\(?([@])\)?", r"[Tt]he correct answer is option:?\s+\(?([@])\)?"),
    *(r"[Tt]he answer to the question is:?\s+\(?([@])\)?", r"^选项\s?([@])", r"^([@])\s?选?项"),
    *(r"(\s|^)[@][\s。，,：:\.$]", r"1.\s?(.*?)$", r"1.\s?([@])[.。$]?$", r"([@]):", r"([@])"),
)
"""In the order in which they are tried; ``@`` stands for the letters of the item's options."""


def first_option(text: str, letters: str) -> str | None:
    """The first letter, in the order of the options, within the first match that holds one."""
    for pattern in _PATTERNS:
        if match := re.search(pattern.replace("@", re.escape(letters)), text, re.DOTALL):
            for letter in letters:
                if letter in match[0]:
                    return letter
    return None


def simple_evals_first_answer(text: str, letters: str) -> str | None:
    """The letter after the first "Answer:", in the case it was written in: a lower-case one is no option's letter."""
    match = re.search(rf"(?i)Answer[ \t]*:[ \t]*\$?([{re.escape(letters)}])\$?", text)
    return match[1] if match else None


_REMOVED = (
    *("**", "$\\boxed{", "}$", "\\$", "$\\text{", "$", "\\mathrm{", "\\{", "\\text", "\\(", "\\mathbf{", "{"),
    "\\boxed",
)
"""Markdown and LaTeX that is removed, in this order."""

_LETTERS = dict(zip("أبجد" + "অবডঢ" + "ＡＢＣＤ", "ABCD" * 3, strict=True))
"""Arabic, Bengali and full-width letters that stand for A to D."""

_ANSWER = (
    *("Answer\\s*:", "উত্তর\\s*:", "उत्तर\\s*:", "উত্তরঃ", "উত্তর\\s*:", "Antwort\\s*:"),
    *("답변\\s*:", "정답\\s*:", "답\\s*:", "答案\\s*：", "答案\\s*:", "答\\s*：", "答\\s*:", "答复\\s*："),
    *("答曰\\s*：", "الإجابة:", "الجواب:", "إجابة:", "الإجابة النهائية:", "الإجابة الصحيحة:", "الإجابة الصحيحة هي:"),
    *("الإجابة هي:", "الجواب النهائي:", "Respuesta\\s*:", "Risposta\\s*:", "答え\\s*:", "答え\\s*：", "回答\\s*:"),
    *("回答\\s*：", "解答\\s*:", "Jawaban\\s*:", "Réponse\\s*:", "Resposta\\s*:", "Jibu\\s*:", "Idahun\\s*:"),
    *("Ìdáhùn\\s*:", "Idáhùn\\s*:", "Àmọ̀nà\\s*:", "Àdáhùn\\s*:", "Ànúgọ\\s*:", "Àṣàyàn\\s*:"),
)
"""The word "Answer" and its translations, in the order in which they are tried."""


def first_answer_in_any_language(text: str, letters: str) -> str | None:
    """The letter after the first "Answer:" in the first language that has one, markdown and LaTeX removed."""
    for mark in _REMOVED:
        text = text.replace(mark, "")
    for answer in _ANSWER:
        others = "|".join(f"[{group}]" for group in ("أ-د", *"অবডঢＡＢＣＤ"))
        if match := re.search(f"(?i){answer}[ \\t]*([{re.escape(letters)}]|{others})", text):
            return _LETTERS.get(match[1], match[1])
    return None


def marked(text: str, solution: str) -> bool | None:
    """Whether the first number after "#### " is that of the solution, commas removed; None where there is none."""
    number, right = (_first(each) for each in (text, solution))
    return None if number is None else number == right


_MARKED = re.compile(r"#### (\-?[0-9\.\,]+)")


def strict(text: str, solution: str) -> bool | None:
    """The same, dollar signs and a full stop at the end removed, too."""
    number = _MARKED.search(text)
    return None if number is None else _bare(number[1]) == _bare(solution)


_ANY = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")


def flexible(text: str, solution: str) -> bool | None:
    """Whether the last number anywhere is that of the solution, all the same removed; None where there is none."""
    numbers = _ANY.findall(text)
    return _bare(next(filter(None, numbers[-1])).strip()) == _bare(solution) if numbers else None


def _first_letter(text: str, letters: str) -> str | None:
    """The first of the letters anywhere in the text, the article "A" included (``([ABCD])``, take_first)."""
    return next((character for character in text if character in letters), None)


_FIRST_LINE: Final = re.compile(r"(?i)^ANSWER\s*:\s*([A-Za-z ,]+)\s*(?:$|\n)", re.MULTILINE)

_FIRST_ANYWHERE: Final = re.compile(r"(?i)ANSWER\s*:\s*([A-Za-z ,]+)(?:[^\w]|\n|$)")


def _any_letters(text: str, letters: str) -> str | None:
    """0.3.42 to 0.3.120: every letter in what stands after the first "ANSWER:" is an answer, so one must be alone."""
    match = _FIRST_LINE.search(text) or _FIRST_ANYWHERE.search(text)
    said = {letter for letter in match[1].upper() if letter in letters} if match else set()
    return said.pop() if len(said) == 1 else None


_LINE: Final = re.compile(r"(?i)^ANSWER\s*:\s*([A-Za-z\d ,]+)\s*(?:$|\n|\.)", re.MULTILINE)

_ANYWHERE: Final = re.compile(r"(?i)ANSWER\s*:\s*([A-Za-z\d ,]+)(?:[^\w]|\n|$|\.)")


def _inspect_first_answer(text: str, letters: str) -> str | None:
    """0.3.121 to 0.3.220: what stands after the first "ANSWER:" must be one letter, as it is."""
    match = _LINE.search(text) or _ANYWHERE.search(text)
    said = match[1].strip().rstrip(".") if match else ""
    return said if len(said) == 1 and said in letters else None


def _last_answer(text: str, letters: str) -> str | None:
    """0.3.221 to 0.3.263: what stands after the last "ANSWER:" must be one letter, in whichever case.

    From 0.3.261 on a comma may follow it, which is left out here.
    """
    matches = _LINE.findall(text) or _ANYWHERE.findall(text)
    said = matches[-1].strip().rstrip(".").upper() if matches else ""
    return said if len(said) == 1 and said in letters else None


_WRAPPED: Final = (
    (re.compile(r"\x24\s*([A-Za-z\d][A-Za-z\d ,]*?)\s*\x24"), r"\1"),
    (re.compile(r"\*\*\s*([A-Za-z\d][A-Za-z\d ,]*?)\s*\*\*"), r"\1"),
    (re.compile(r"(?i)(^|[:,])(\s*)\(([A-Za-z\d])\)(?=\s*(?:,|\.|\n|\Z))"), r"\1\2\3"),
)


def _last_answer_unwrapped(text: str, letters: str) -> str | None:
    """0.3.264 on: the same, once a letter within ``$``, ``**`` or parentheses is unwrapped; a comma may follow it."""
    for pattern, kept in _WRAPPED:
        text = pattern.sub(kept, text)
    matches = _LINE.findall(text) or _ANYWHERE.findall(text)
    tokens = [token for token in matches[-1].strip().rstrip(".").upper().split(",") if token] if matches else []
    return tokens[0] if len(tokens) == 1 and len(tokens[0]) == 1 and tokens[0] in letters else None


def _first(text: str) -> str | None:
    match = _MARKED.search(text)
    return None if match is None else match[1].replace(",", "")


_IGNORED = (",", r"\$", r"(?s).*#### ", r"\.$")
"""What today's harness removes from both sides, in this order."""


def _bare(text: str) -> str:
    for pattern in _IGNORED:
        text = re.sub(pattern, "", text)
    return text.lower()


Rule = Callable[[str, str], str | None]
"""From a text and the letters of an item's options to a letter, or None where the rule finds none."""

RULES: Mapping[str, Rule] = {
    "simple-evals@f517a91": simple_evals_first_answer,
    "simple-evals-multilingual@f517a91": first_answer_in_any_language,
    "opencompass@14ca958": first_option,
    "harness-letter@4e7e0d4": _first_letter,
    "inspect@0.3.42": _any_letters,
    "inspect@0.3.121": _inspect_first_answer,
    "inspect@0.3.221": _last_answer,
    "inspect@0.3.264": _last_answer_unwrapped,
}
"""Rules for letters.

A rule whose source changes gets a second name; the name that numbers were published with stays.
"""

Comparison = Callable[[str, str], bool | None]
"""From a text and a solution to whether their numbers agree; None where the text has none."""

NUMBERS: Mapping[str, Comparison] = {
    "gsm8k@b281b09": marked,
    "gsm8k-strict@4e7e0d4": strict,
    "gsm8k-flexible@4e7e0d4": flexible,
}
"""Rules for numbers, likewise."""
