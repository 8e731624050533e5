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
and MULTILINGUAL_ANSWER_PATTERN_TEMPLATE with its normalisations, as mmlu_eval.py@9768118 does; both are the same at
ee3b031).  A-D in the source are the item's letters here, the same for four options.

Read at the commits in their names: TIGER-AI-Lab/MMLU-Pro, evaluate_from_local.py; EleutherAI/lm-evaluation-harness,
tasks mmlu_pro and mmlu-redux; stanford-crfm/helm, gpqa_chain_of_thought_metric.py; UKGovernmentBEIS/inspect_ai once
more, after 0.3.260; the package evalscope, utils/multi_choices.py, ``parse_answers``; allenai/olmo-eval,
evals/tasks/gpqa.py; huggingface/lighteval, metrics/utils/extractive_match_utils.py, indices with English words and an
anchor; open-compass/opencompass once more.  Where a source reads A-J or A-Z whatever an item has, so do these; what it
then reads is no option's letter, and it looks no further.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from choicewise import ports

_PATTERNS = (
    *(r"答案是?\s*([@])", r"答案是?\s*：\s*([@])", r"答案是?\s*:\s*([@])", r"答案应该?是\s*([@])"),
    *(r"答案应该?选\s*([@])", r"答案为\s*([@])", r"答案选\s*([@])", r"选择?\s*([@])"),
    *(
        r"故选?\s*([@])只有选?项?\s?([@])\s?是?对",
        r"只有选?项?\s?([@])\s?是?错",
        r"只有选?项?\s?([@])\s?不?正确",
    ),
    *(
        r"只有选?项?\s?([@])\s?错误",
        r"说法不?对选?项?的?是\s?([@])",
        r"说法不?正确选?项?的?是\s?([@])",
    ),
    *(
        r"说法错误选?项?的?是\s?([@])",
        r"([@])\s?是正确的",
        r"([@])\s?是正确答案",
        r"选项\s?([@])\s?正确",
    ),
    *(
        r"所以答\s?([@])",
        r"所以\s?([@][.。$]?$)",
        r"所有\s?([@][.。$]?$)",
        r"[\s，：:,]([@])[。，,\.]?$",
    ),
    *(
        r"[\s，,：:][故即]([@])[。\.]?$",
        r"[\s，,：:]因此([@])[。\.]?$",
        r"[是为。]\s?([@])[。\.]?$",
    ),
    *(
        r"因此\s?([@])[。\.]?$",
        r"显然\s?([@])[。\.]?$",
        r"答案是\s?(\S+)(?:。|$)",
        r"答案应该是\s?(\S+)(?:。|$)",
    ),
    *(
        r"答案为\s?(\S+)(?:。|$)",
        r"[Tt]he answer is:?\s+\(?([@])\)?",
        r"[Tt]he answer is option:?\s+\(?([@])\)?",
    ),
    *(
        r"[Tt]he correct answer is:?\s+\(?([@])\)?",
        r"[Tt]he correct answer is option:?\s+\(?([@])\)?",
    ),
    *(r"[Tt]he answer to the question is:?\s+\(?([@])\)?", r"^选项\s?([@])", r"^([@])\s?选?项"),
    *(r"(\s|^)[@][\s。，,：:\.$]", r"1.\s?(.*?)$", r"1.\s?([@])[.。$]?$", r"([@]):", r"([@])"),
)
"""In the order in which they are tried; ``@`` stands for the letters of the item's options."""


_ADDED = {
    r"答案是?\s*:\s*([@])": (r"答案选项应?该?是\s*([@])", r"答案选项应?该?为\s*([@])"),
    r"答案应该?选\s*([@])": (
        *(
            r"答案选项为?\s*：\s*([@])",
            r"答案选项为?\s+\(?\*?\*?([@])\*?\*?\)?",
            r"答案选项是?\s*:\s*([@])",
        ),
    ),
    r"答案为\s?(\S+)(?:。|$)": (r"(?i)ANSWER\s*:\s*([@])",),
    r"[Tt]he answer is:?\s+\(?([@])\)?": (r"[Tt]he answer is:?\s+\(?\*?\*?([@])\*?\*?\)?",),
    r"[Tt]he correct answer is option:?\s+\(?([@])\)?": (
        *(
            r"[Tt]he correct answer is:?.*?boxed{([@])}",
            r"[Tt]he correct option is:?.*?boxed{([@])}",
        ),
        r"[Tt]he correct answer option is:?.*?boxed{([@])}",
    ),
}
"""Pattern → those that stand behind it at a5acc4b."""

_PATTERNS_2026 = tuple(
    each for pattern in _PATTERNS for each in (pattern, *_ADDED.get(pattern, ()))
)


def first_option(text: str, letters: str) -> str | None:
    """The first letter, in the order of the options, within the first match that holds one."""
    for pattern in _PATTERNS:
        if match := re.search(pattern.replace("@", re.escape(letters)), text, re.DOTALL):
            for letter in letters:
                if letter in match[0]:
                    return letter
    return None


def _first_option_2026(text: str, letters: str) -> str | None:
    """The same with more patterns, within what the first group of a match holds where it holds anything.

    Of a letter between white space and a sign that group is the white space, so that it is not read there.
    """
    text = text.strip()
    for pattern in _PATTERNS_2026:
        if match := re.search(pattern.replace("@", re.escape(letters)), text, re.DOTALL):
            for letter in letters:
                if letter in (match[1] or match[0]):
                    return letter
    return None


def simple_evals_first_answer(text: str, letters: str) -> str | None:
    """The letter after the first "Answer:", in the case it was written in: a lower-case one is no option's letter."""
    match = re.search(rf"(?i)Answer[ \t]*:[ \t]*\$?([{re.escape(letters)}])\$?", text)
    return match[1] if match else None


_REMOVED = (
    *(
        "**",
        "$\\boxed{",
        "}$",
        "\\$",
        "$\\text{",
        "$",
        "\\mathrm{",
        "\\{",
        "\\text",
        "\\(",
        "\\mathbf{",
        "{",
    ),
    "\\boxed",
)
"""Markdown and LaTeX that is removed, in this order."""

_LETTERS = dict(zip("أبجد" + "অবডঢ" + "ＡＢＣＤ", "ABCD" * 3, strict=True))
"""Arabic, Bengali and full-width letters that stand for A to D."""

_ANSWER = (
    *("Answer\\s*:", "উত্তর\\s*:", "उत्तर\\s*:", "উত্তরঃ", "উত্তর\\s*:", "Antwort\\s*:"),
    *(
        "답변\\s*:",
        "정답\\s*:",
        "답\\s*:",
        "答案\\s*：",
        "答案\\s*:",
        "答\\s*：",
        "答\\s*:",
        "答复\\s*：",
    ),
    *(
        "答曰\\s*：",
        "الإجابة:",
        "الجواب:",
        "إجابة:",
        "الإجابة النهائية:",
        "الإجابة الصحيحة:",
        "الإجابة الصحيحة هي:",
    ),
    *(
        "الإجابة هي:",
        "الجواب النهائي:",
        "Respuesta\\s*:",
        "Risposta\\s*:",
        "答え\\s*:",
        "答え\\s*：",
        "回答\\s*:",
    ),
    *(
        "回答\\s*：",
        "解答\\s*:",
        "Jawaban\\s*:",
        "Réponse\\s*:",
        "Resposta\\s*:",
        "Jibu\\s*:",
        "Idahun\\s*:",
    ),
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
    if not match:
        return None
    said = set(match[1].upper()).intersection(letters)
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
    """0.3.264 on: the same, once a letter within ``$``, ``**`` or parentheses is unwrapped."""
    for pattern, kept in _WRAPPED:
        text = pattern.sub(kept, text)
    return _last_answer_with_comma(text, letters)


def _last_answer_with_comma(text: str, letters: str) -> str | None:
    """499e615: as before, and a comma may follow the letter."""
    matches = _LINE.findall(text) or _ANYWHERE.findall(text)
    if not matches:
        return None
    tokens = list(filter(None, matches[-1].strip().rstrip(".").upper().split(",")))
    if len(tokens) == 1 and tokens[0] in set(letters):
        return tokens[0]
    return None


_A_TO_J: Final = "ABCDEFGHIJ"


def _option(letter: str | None, letters: str) -> str | None:
    """What was read, where an option has that letter."""
    return letter if letter is not None and letter in letters else None


def _said(pattern: str, text: str, letters: str) -> str | None:
    """What the first match of ``pattern`` reads, in which ``@`` stands for A to J and the item's letters."""
    match = re.search(
        pattern.replace("@", re.escape("".join(dict.fromkeys(_A_TO_J + letters)))), text
    )
    return match and match[1]


_ANSWER_IS: Final = r"answer is \(?([@])"


def _answer_is(text: str, letters: str) -> str | None:
    """The letter behind the first "answer is" that has one."""
    return _option(_said(_ANSWER_IS, text, letters), letters)


def _mmlu_pro(text: str, letters: str) -> str | None:
    """That letter; else that behind the last "answer:" of the first line that has one; else the last one that stands
    alone.

    For a text without any the source draws an option at random; here it has none, and is wrong.
    """
    return _option(
        _said(_ANSWER_IS, text, letters) or _behind_answer(text, letters) or _last(text, letters),
        letters,
    )


def _behind_answer(text: str, letters: str) -> str | None:
    """As ``.*[aA]nswer:\\s*([A-J])`` reads, in time that does not grow with the square of a line."""
    places = re.finditer(rf"(?=[aA]nswer:\s*([{_A_TO_J}{re.escape(letters)}]))", text)
    letter, end = None, len(text)
    for place in places:
        if place.start() > end:
            break
        if letter is None:
            end = text.find("\n", place.start()) % (len(text) + 1)
        letter = place[1]
    return letter


def _last(text: str, letters: str) -> str | None:
    """As ``\\b[A-J]\\b(?!.*\\b[A-J]\\b)`` reads, likewise."""
    alone = re.findall(rf"\b[{_A_TO_J}{re.escape(letters)}]\b", text)
    return alone[-1] if alone else None


_HELM_GPQA: Final = (
    *(_ANSWER_IS, r"\[aA\]nswer:\s*\(?([@])", r"correct answer is [^A-Za-z]*([@])"),
    r"correct answer is [^A-Z]*([@])",
)
"""The second has its brackets escaped, as in the source, and reads no text but "[aA]nswer:"."""


def _helm_gpqa(text: str, letters: str) -> str | None:
    """What the first of four patterns that matches reads."""
    return _option(
        next(filter(None, (_said(each, text, letters) for each in _HELM_GPQA)), None), letters
    )


_MARKER: Final = re.compile(r"(?i)ANSWER\s*:\s*\**\s*")

_TYPESET: Final = re.compile(
    r"(?:(?:\$+|\\\(|\\(?:boxed|fbox|text|textbf|mathbf|mathrm)\s*\{)\s*)*"
)

_LABELS: Final = (
    re.compile(r"[\(\[（【]\s*([A-Za-z\d](?:\s*[,，/、]\s*[A-Za-z\d])*)\s*[\)\]）】]"),
    re.compile(r"([A-Za-z\d][A-Za-z\d ,，/、]*)"),
)
"""One label or several in brackets, and without."""


def _evalscope(text: str, letters: str) -> str | None:
    """The one label behind the last "ANSWER:" that has any; where none has, the last capital, if it is an option's.

    Several labels behind it are no answer.
    """
    for marker in reversed([*_MARKER.finditer(text)]):
        start = marker.end()
        if match := _TYPESET.match(text, start):
            start = match.end()
        for pattern in _LABELS:
            if (match := pattern.match(text, start)) and (labels := _labels(match[1], letters)):
                return _option(labels, letters) if len(labels) == 1 else None
    return _option(
        next((character for character in reversed(text) if character.isupper()), None), letters
    )


def _labels(said: str, letters: str) -> str:
    """The words that ``said`` begins with and that are made of labels, with "and" and "or" between two of them."""
    words = [*re.finditer(r"[A-Za-z\d]+", said)]
    labels = [set(word[0]) <= set(letters) for word in words]
    end = 0
    for place, word in enumerate(words):
        if labels[place]:
            end = word.end()
        elif not (
            end and True in labels[place + 1 : place + 2] and word[0].lower() in ("and", "or")
        ):
            break
    return said[:end]


def _olmo_eval_gpqa(text: str, letters: str) -> str | None:
    """Behind the last "ANSWER:" any letter, as a capital; else the last in parentheses; else the last one alone.

    The first letter of a word behind "ANSWER:" counts, too; what is read there or in parentheses is final.
    """
    for pattern in (r"(?i)ANSWER\s*:\s*\(?([A-Z])\)?", r"\(([A-Z])\)", r"\b([A-Z])\b"):
        if said := re.findall(pattern, text):
            return _option(said[-1].upper(), letters)
    return None


@lru_cache(maxsize=64)
def _anchored(letters: str) -> tuple[re.Pattern[str], ...]:
    """In the order in which they are tried."""
    index = rf"(?P<index>[{re.escape(letters)}]|\([{re.escape(letters)}]\))"
    end = r"(?:\*\*)?(?:\.|,|\s?:| |$)"
    alone = rf"(?:^| )(?:\*\*)?{index}{end}"
    patterns = (
        *(
            rf"(?i:final answer is):?\s*{index}\.?\s?I hope",
            rf"(?i:final answer.{{0,100}}?)\s+is:?\s*{index}",
        ),
        *(rf"(?i:answer)\s?:.{{0,50}}?{alone}", rf"(?i:answer).{{0,50}}?{alone}"),
        *(rf"^(?:\*\*)?{index}{end}", rf"\n(?:\*\*)?{index}{end}"),
    )
    return tuple(re.compile(pattern) for pattern in patterns)


def _lighteval_indices(text: str, letters: str) -> str | None:
    """The match that ends last, of the first pattern that has one: "final answer", "answer", start of text or line."""
    for pattern in _anchored(letters):
        if matches := [*pattern.finditer(text)]:
            last = max(matches, key=lambda match: (match.end(), -match.start()))
            return last["index"].strip("()")
    return None


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

RULES: Mapping[str, Rule] = ports.OpenTable(
    {
        "simple-evals@f517a91": simple_evals_first_answer,
        "simple-evals-multilingual@f517a91": first_answer_in_any_language,
        "opencompass@14ca958": first_option,
        "harness-letter@4e7e0d4": _first_letter,
        "inspect@0.3.42": _any_letters,
        "inspect@0.3.121": _inspect_first_answer,
        "inspect@0.3.221": _last_answer,
        "inspect@0.3.264": _last_answer_unwrapped,
        "inspect@499e615": _last_answer_with_comma,
        "mmlu-pro@f418b11": _mmlu_pro,
        "harness-answer-is@4e7e0d4": _answer_is,
        "helm-gpqa@63754d0": _helm_gpqa,
        "evalscope@1.14.1": _evalscope,
        "olmo-eval-gpqa@e8b88f1": _olmo_eval_gpqa,
        "lighteval-indices@3fd1526": _lighteval_indices,
        "opencompass@a5acc4b": _first_option_2026,
    },
    ports.Extraction,
    lambda addition: addition.letter,
)
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
