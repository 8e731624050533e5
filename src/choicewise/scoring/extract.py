"""Read the letter or the number that a generated text answers, by published rules.

A rule for letters takes a text and the letters of the item's options.  A-D in a source are the
item's letters here, the same for four options.  If a source reads A-J or A-Z for any item, so does
the rule; if what it reads is no option's letter, it looks no further.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from choicewise import ports

# Patterns and their order: open-compass/opencompass text_postprocessors.py@14ca958,
# first_option_postprocess.  A missing comma there joins two patterns into one ("故选A只有B对"), so
# that neither is tried alone; it is kept, because numbers were published with it.  The last pattern
# takes the first letter anywhere, the article "A" included.
_PATTERNS = (
    r"答案是?\s*([@])",
    r"答案是?\s*：\s*([@])",
    r"答案是?\s*:\s*([@])",
    r"答案应该?是\s*([@])",
    r"答案应该?选\s*([@])",
    r"答案为\s*([@])",
    r"答案选\s*([@])",
    r"选择?\s*([@])",
    r"故选?\s*([@])只有选?项?\s?([@])\s?是?对",
    r"只有选?项?\s?([@])\s?是?错",
    r"只有选?项?\s?([@])\s?不?正确",
    r"只有选?项?\s?([@])\s?错误",
    r"说法不?对选?项?的?是\s?([@])",
    r"说法不?正确选?项?的?是\s?([@])",
    r"说法错误选?项?的?是\s?([@])",
    r"([@])\s?是正确的",
    r"([@])\s?是正确答案",
    r"选项\s?([@])\s?正确",
    r"所以答\s?([@])",
    r"所以\s?([@][.。$]?$)",
    r"所有\s?([@][.。$]?$)",
    r"[\s，：:,]([@])[。，,\.]?$",
    r"[\s，,：:][故即]([@])[。\.]?$",
    r"[\s，,：:]因此([@])[。\.]?$",
    r"[是为。]\s?([@])[。\.]?$",
    r"因此\s?([@])[。\.]?$",
    r"显然\s?([@])[。\.]?$",
    r"答案是\s?(\S+)(?:。|$)",
    r"答案应该是\s?(\S+)(?:。|$)",
    r"答案为\s?(\S+)(?:。|$)",
    r"[Tt]he answer is:?\s+\(?([@])\)?",
    r"[Tt]he answer is option:?\s+\(?([@])\)?",
    r"[Tt]he correct answer is:?\s+\(?([@])\)?",
    r"[Tt]he correct answer is option:?\s+\(?([@])\)?",
    r"[Tt]he answer to the question is:?\s+\(?([@])\)?",
    r"^选项\s?([@])",
    r"^([@])\s?选?项",
    r"(\s|^)[@][\s。，,：:\.$]",
    r"1.\s?(.*?)$",
    r"1.\s?([@])[.。$]?$",
    r"([@]):",
    r"([@])",
)
"""In the order in which they are tried; ``@`` stands for the letters of the item's options."""


_ADDED = {
    r"答案是?\s*:\s*([@])": (
        r"答案选项应?该?是\s*([@])",
        r"答案选项应?该?为\s*([@])",
    ),
    r"答案应该?选\s*([@])": (
        r"答案选项为?\s*：\s*([@])",
        r"答案选项为?\s+\(?\*?\*?([@])\*?\*?\)?",
        r"答案选项是?\s*:\s*([@])",
    ),
    r"答案为\s?(\S+)(?:。|$)": (r"(?i)ANSWER\s*:\s*([@])",),
    r"[Tt]he answer is:?\s+\(?([@])\)?": (r"[Tt]he answer is:?\s+\(?\*?\*?([@])\*?\*?\)?",),
    r"[Tt]he correct answer is option:?\s+\(?([@])\)?": (
        r"[Tt]he correct answer is:?.*?boxed{([@])}",
        r"[Tt]he correct option is:?.*?boxed{([@])}",
        r"[Tt]he correct answer option is:?.*?boxed{([@])}",
    ),
}
"""Pattern → the patterns that stand behind it at a5acc4b."""

_PATTERNS_2026: list[str] = []
for _pattern in _PATTERNS:
    _PATTERNS_2026.append(_pattern)
    _PATTERNS_2026.extend(_ADDED.get(_pattern, ()))


def first_option(text: str, letters: str) -> str | None:
    """Return the first letter, in the order of the options, in the first match that holds one."""
    for pattern in _PATTERNS:
        match = _search(pattern, text, letters)
        letter = _first_held(match[0], letters) if match else None
        if letter is not None:
            return letter
    return None


def _first_option_2026(text: str, letters: str) -> str | None:
    """Read with more patterns, in the first group of a match unless that is empty.

    The group of a letter between white space and a sign is the white space, so the letter is not
    read there.
    """
    text = text.strip()
    for pattern in _PATTERNS_2026:
        match = _search(pattern, text, letters)
        letter = _first_held(match[1] or match[0], letters) if match else None
        if letter is not None:
            return letter
    return None


def _search(pattern: str, text: str, letters: str) -> re.Match[str] | None:
    return re.search(pattern.replace("@", re.escape(letters)), text, re.DOTALL)


def _first_held(part: str, letters: str) -> str | None:
    for letter in letters:
        if letter in part:
            return letter
    return None


# Patterns and replacements: openai/simple-evals common.py@f517a91: ANSWER_PATTERN_MULTICHOICE, as
# gpqa_eval.py uses it, and MULTILINGUAL_ANSWER_PATTERN_TEMPLATE with its normalisations, as
# mmlu_eval.py@9768118 does; both are the same at ee3b031.
def simple_evals_first_answer(text: str, letters: str) -> str | None:
    """Return the letter after the first "Answer:", in the case it was written in.

    A lower-case letter is no option's.
    """
    match = re.search(rf"(?i)Answer[ \t]*:[ \t]*\$?([{re.escape(letters)}])\$?", text)
    return match[1] if match else None


_REMOVED = (
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
    "\\boxed",
)
"""Markdown and LaTeX that is removed, in this order."""

_LETTERS = dict(zip("أبجد" + "অবডঢ" + "ＡＢＣＤ", "ABCD" * 3, strict=True))
"""Arabic, Bengali and full-width letters that stand for A to D."""

_ANSWER = (
    "Answer\\s*:",
    "উত্তর\\s*:",
    "उत्तर\\s*:",
    "উত্তরঃ",
    "উত্তর\\s*:",
    "Antwort\\s*:",
    "답변\\s*:",
    "정답\\s*:",
    "답\\s*:",
    "答案\\s*：",
    "答案\\s*:",
    "答\\s*：",
    "答\\s*:",
    "答复\\s*：",
    "答曰\\s*：",
    "الإجابة:",
    "الجواب:",
    "إجابة:",
    "الإجابة النهائية:",
    "الإجابة الصحيحة:",
    "الإجابة الصحيحة هي:",
    "الإجابة هي:",
    "الجواب النهائي:",
    "Respuesta\\s*:",
    "Risposta\\s*:",
    "答え\\s*:",
    "答え\\s*：",
    "回答\\s*:",
    "回答\\s*：",
    "解答\\s*:",
    "Jawaban\\s*:",
    "Réponse\\s*:",
    "Resposta\\s*:",
    "Jibu\\s*:",
    "Idahun\\s*:",
    "Ìdáhùn\\s*:",
    "Idáhùn\\s*:",
    "Àmọ̀nà\\s*:",
    "Àdáhùn\\s*:",
    "Ànúgọ\\s*:",
    "Àṣàyàn\\s*:",
)
"""The word "Answer" and its translations, in the order in which they are tried."""

_FOREIGN = "|".join(f"[{group}]" for group in ("أ-د", *"অবডঢＡＢＣＤ"))


def first_answer_in_any_language(text: str, letters: str) -> str | None:
    """Return the letter after the first "Answer:" of the first language that has one.

    Markdown and LaTeX are removed first.
    """
    for mark in _REMOVED:
        text = text.replace(mark, "")
    for answer in _ANSWER:
        match = re.search(f"(?i){answer}[ \\t]*([{re.escape(letters)}]|{_FOREIGN})", text)
        if match:
            return _LETTERS.get(match[1], match[1])
    return None


# Patterns of numbers: EleutherAI/lm-evaluation-harness, lm_eval/tasks/gsm8k.py@b281b09 and
# lm_eval/tasks/gsm8k/gsm8k.yaml@4e7e0d4 with lm_eval/filters/extraction.py and exact_match of
# lm_eval/api/metrics.py.
_MARKED = re.compile(r"#### (\-?[0-9\.\,]+)")

_ANYWHERE_NUMBER = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")


def marked(text: str, solution: str) -> bool | None:
    """Compare the first number after "#### " with the solution's, without commas.

    None if the text has none.
    """
    number = _first_marked(text)
    if number is None:
        return None
    return number == _first_marked(solution)


def _first_marked(text: str) -> str | None:
    match = _MARKED.search(text)
    return match[1].replace(",", "") if match else None


def strict(text: str, solution: str) -> bool | None:
    """Compare the first number after "#### " with the solution's.

    Commas, dollar signs and a full stop at the end are removed.  None if the text has none.
    """
    number = _MARKED.search(text)
    if number is None:
        return None
    return _bare(number[1]) == _bare(solution)


def flexible(text: str, solution: str) -> bool | None:
    """Compare the last number anywhere with the solution's, bare as in :func:`strict`.

    None if the text has none.
    """
    numbers = _ANYWHERE_NUMBER.findall(text)
    if not numbers:
        return None
    formatted, plain = numbers[-1]
    return _bare((formatted or plain).strip()) == _bare(solution)


_IGNORED = (",", r"\$", r"(?s).*#### ", r"\.$")
"""What today's harness removes from both sides, in this order."""


def _bare(text: str) -> str:
    for pattern in _IGNORED:
        text = re.sub(pattern, "", text)
    return text.lower()


def _first_letter(text: str, letters: str) -> str | None:
    """Return the first of the letters anywhere, the article "A" included.

    It is the harness's ``([ABCD])`` with take_first.
    """
    for character in text:
        if character in letters:
            return character
    return None


# Read at UKGovernmentBEIS/inspect_ai, solver/_multiple_choice.py, ``parse_answers`` and, before
# 0.3.121, ``set_choices_based_on_generated_response``: 775396c (0.3.42), e4a551f (0.3.121),
# 846da97 (0.3.221), and the packages 0.3.264 and 0.3.285, which read alike.  All are the rules for
# one answer (``multiple_correct=False``).
_FIRST_LINE = re.compile(r"(?i)^ANSWER\s*:\s*([A-Za-z ,]+)\s*(?:$|\n)", re.MULTILINE)

_FIRST_ANYWHERE = re.compile(r"(?i)ANSWER\s*:\s*([A-Za-z ,]+)(?:[^\w]|\n|$)")

_LINE = re.compile(r"(?i)^ANSWER\s*:\s*([A-Za-z\d ,]+)\s*(?:$|\n|\.)", re.MULTILINE)

_ANYWHERE = re.compile(r"(?i)ANSWER\s*:\s*([A-Za-z\d ,]+)(?:[^\w]|\n|$|\.)")


def _any_letters(text: str, letters: str) -> str | None:
    """Return the one letter among the words behind the first "ANSWER:" (0.3.42 to 0.3.120).

    Every letter in them is an answer, so there must be only one.
    """
    match = _FIRST_LINE.search(text) or _FIRST_ANYWHERE.search(text)
    if not match:
        return None
    answers = set(match[1].upper()).intersection(letters)
    return answers.pop() if len(answers) == 1 else None


def _inspect_first_answer(text: str, letters: str) -> str | None:
    """Return the letter behind the first "ANSWER:", in its case (0.3.121 to 0.3.220)."""
    match = _LINE.search(text) or _ANYWHERE.search(text)
    if not match:
        return None
    return _alone(match[1].strip().rstrip("."), letters)


def _last_answer(text: str, letters: str) -> str | None:
    """Return the letter behind the last "ANSWER:", in any case (0.3.221 to 0.3.263).

    From 0.3.261 on a comma may follow it, which is left out here.
    """
    matches = _LINE.findall(text) or _ANYWHERE.findall(text)
    if not matches:
        return None
    return _alone(matches[-1].strip().rstrip(".").upper(), letters)


def _alone(answer: str, letters: str) -> str | None:
    if len(answer) == 1 and answer in letters:
        return answer
    return None


_WRAPPED = (
    (re.compile(r"\x24\s*([A-Za-z\d][A-Za-z\d ,]*?)\s*\x24"), r"\1"),
    (re.compile(r"\*\*\s*([A-Za-z\d][A-Za-z\d ,]*?)\s*\*\*"), r"\1"),
    (re.compile(r"(?i)(^|[:,])(\s*)\(([A-Za-z\d])\)(?=\s*(?:,|\.|\n|\Z))"), r"\1\2\3"),
)


def _last_answer_unwrapped(text: str, letters: str) -> str | None:
    """Return the letter behind the last "ANSWER:", out of ``$``, ``**`` or parentheses
    (0.3.264)."""
    for pattern, kept in _WRAPPED:
        text = pattern.sub(kept, text)
    return _last_answer_with_comma(text, letters)


def _last_answer_with_comma(text: str, letters: str) -> str | None:
    """Return the letter behind the last "ANSWER:", which a comma may follow (499e615)."""
    matches = _LINE.findall(text) or _ANYWHERE.findall(text)
    if not matches:
        return None
    answers = [part for part in matches[-1].strip().rstrip(".").upper().split(",") if part]
    if len(answers) != 1:
        return None
    return _alone(answers[0], letters)


# Read at the commits in their names: TIGER-AI-Lab/MMLU-Pro, evaluate_from_local.py;
# EleutherAI/lm-evaluation-harness, tasks mmlu_pro and mmlu-redux; stanford-crfm/helm,
# gpqa_chain_of_thought_metric.py; the package evalscope, utils/multi_choices.py, ``parse_answers``;
# allenai/olmo-eval, evals/tasks/gpqa.py; huggingface/lighteval,
# metrics/utils/extractive_match_utils.py, indices with English words and an anchor.
_A_TO_J = "ABCDEFGHIJ"


def _option(letter: str | None, letters: str) -> str | None:
    """Return the letter if an option has it."""
    return letter if letter is not None and letter in letters else None


def _first_match(pattern: str, text: str, letters: str) -> str | None:
    """Return the group of the first match; ``@`` stands for A to J and the item's letters."""
    characters = re.escape("".join(dict.fromkeys(_A_TO_J + letters)))
    match = re.search(pattern.replace("@", characters), text)
    return match[1] if match else None


_ANSWER_IS = r"answer is \(?([@])"


def _answer_is(text: str, letters: str) -> str | None:
    """Return the letter behind the first "answer is" that has one."""
    return _option(_first_match(_ANSWER_IS, text, letters), letters)


def _mmlu_pro(text: str, letters: str) -> str | None:
    """Return the letter behind "answer is", else that behind "answer:", else the last one alone.

    For a text without any the source draws an option at random; here the answer is wrong.
    """
    letter = _first_match(_ANSWER_IS, text, letters)
    if letter is None:
        letter = _behind_answer(text, letters)
    if letter is None:
        letter = _last(text, letters)
    return _option(letter, letters)


def _behind_answer(text: str, letters: str) -> str | None:
    """Return the letter behind the last "answer:" of the first line that has one.

    ``.*[aA]nswer:\\s*([A-J])`` finds the same, in time that grows with the square of a line.
    """
    letter = None
    line_end = len(text)
    for match in re.finditer(rf"(?=[aA]nswer:\s*([{_A_TO_J}{re.escape(letters)}]))", text):
        if match.start() > line_end:
            break
        if letter is None:
            newline = text.find("\n", match.start())
            if newline >= 0:
                line_end = newline
        letter = match[1]
    return letter


def _last(text: str, letters: str) -> str | None:
    """Return the last letter that stands alone.

    ``\\b[A-J]\\b(?!.*\\b[A-J]\\b)`` finds the same, in time that grows with the square of a line.
    """
    alone = re.findall(rf"\b[{_A_TO_J}{re.escape(letters)}]\b", text)
    return alone[-1] if alone else None


_HELM_GPQA = (
    _ANSWER_IS,
    # The brackets are escaped, as in the source, so that it reads no text but "[aA]nswer:".
    r"\[aA\]nswer:\s*\(?([@])",
    r"correct answer is [^A-Za-z]*([@])",
    r"correct answer is [^A-Z]*([@])",
)


def _helm_gpqa(text: str, letters: str) -> str | None:
    """Return the letter of the first of four patterns that matches."""
    for pattern in _HELM_GPQA:
        letter = _first_match(pattern, text, letters)
        if letter is not None:
            return _option(letter, letters)
    return None


_MARKER = re.compile(r"(?i)ANSWER\s*:\s*\**\s*")

_TYPESET = re.compile(r"(?:(?:\$+|\\\(|\\(?:boxed|fbox|text|textbf|mathbf|mathrm)\s*\{)\s*)*")

_LABELS = (
    re.compile(r"[\(\[（【]\s*([A-Za-z\d](?:\s*[,，/、]\s*[A-Za-z\d])*)\s*[\)\]）】]"),
    re.compile(r"([A-Za-z\d][A-Za-z\d ,，/、]*)"),
)
"""One label or several in brackets, and without."""


def _evalscope(text: str, letters: str) -> str | None:
    """Return the one label behind the last "ANSWER:" that has any.

    Several labels behind it are no answer.  Without such an "ANSWER:" it is the last capital, if
    that is an option's.
    """
    for marker in reversed(list(_MARKER.finditer(text))):
        labels = _labels_at(marker.end(), text, letters)
        if len(labels) > 1:
            return None
        if labels:
            return _option(labels, letters)
    for character in reversed(text):
        if character.isupper():
            return _option(character, letters)
    return None


def _labels_at(start: int, text: str, letters: str) -> str:
    """Return the labels that ``text`` has at ``start``, behind LaTeX; "" if it has none."""
    typeset = _TYPESET.match(text, start)
    if typeset:
        start = typeset.end()
    for pattern in _LABELS:
        match = pattern.match(text, start)
        labels = _labels(match[1], letters) if match else ""
        if labels:
            return labels
    return ""


def _labels(answer: str, letters: str) -> str:
    """Return the start of ``answer`` whose words are made of labels, or "and" or "or" between
    them."""
    words = list(re.finditer(r"[A-Za-z\d]+", answer))
    is_label = [set(word[0]).issubset(letters) for word in words]
    end = 0
    for index, word in enumerate(words):
        if is_label[index]:
            end = word.end()
            continue
        joins = end > 0 and word[0].lower() in ("and", "or")
        if not joins or not any(is_label[index + 1 : index + 2]):
            break
    return answer[:end]


def _olmo_eval_gpqa(text: str, letters: str) -> str | None:
    """Return any letter behind the last "ANSWER:", as a capital.

    Without it, the letter is the last in parentheses; else the last one alone.  The first letter of
    a word behind "ANSWER:" counts, too; a letter that is read there or in parentheses is final.
    """
    for pattern in (r"(?i)ANSWER\s*:\s*\(?([A-Z])\)?", r"\(([A-Z])\)", r"\b([A-Z])\b"):
        matches = re.findall(pattern, text)
        if matches:
            return _option(matches[-1].upper(), letters)
    return None


@lru_cache(maxsize=64)
def _anchored(letters: str) -> tuple[re.Pattern[str], ...]:
    """Compile the patterns in the order in which they are tried."""
    index = rf"(?P<index>[{re.escape(letters)}]|\([{re.escape(letters)}]\))"
    end = r"(?:\*\*)?(?:\.|,|\s?:| |$)"
    alone = rf"(?:^| )(?:\*\*)?{index}{end}"
    patterns = (
        rf"(?i:final answer is):?\s*{index}\.?\s?I hope",
        rf"(?i:final answer.{{0,100}}?)\s+is:?\s*{index}",
        rf"(?i:answer)\s?:.{{0,50}}?{alone}",
        rf"(?i:answer).{{0,50}}?{alone}",
        rf"^(?:\*\*)?{index}{end}",
        rf"\n(?:\*\*)?{index}{end}",
    )
    return tuple(re.compile(pattern) for pattern in patterns)


def _lighteval_indices(text: str, letters: str) -> str | None:
    """Return the match that ends last, of the first pattern that has one.

    The patterns anchor it at "final answer", "answer", the start of the text or of a line.
    """
    for pattern in _anchored(letters):
        matches = list(pattern.finditer(text))
        if matches:
            last = max(matches, key=lambda match: (match.end(), -match.start()))
            return last["index"].strip("()")
    return None


Rule = Callable[[str, str], str | None]
"""From a text and the letters of an item's options to a letter, or None if the rule finds none."""

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
"""Rules for letters by name.

A rule whose source changes gets a second name; the name that numbers were published with stays.
"""

Comparison = Callable[[str, str], bool | None]
"""From a text and a solution to a comparison of their numbers; None if the text has none."""

NUMBERS: Mapping[str, Comparison] = {
    "gsm8k@b281b09": marked,
    "gsm8k-strict@4e7e0d4": strict,
    "gsm8k-flexible@4e7e0d4": flexible,
}
"""Rules for numbers by name."""
