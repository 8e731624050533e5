"""How OpenAI's simple-evals finds the answer in a text.

Patterns and replacements: openai/simple-evals common.py@f517a91 (ANSWER_PATTERN_MULTICHOICE, as gpqa_eval.py uses it,
and MULTILINGUAL_ANSWER_PATTERN_TEMPLATE with its normalisations, as mmlu_eval.py@9768118 does).  A-D in the
source are the item's letters here, the same for four options.
"""

import re

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


def first_answer(text: str, letters: str) -> str | None:
    """The letter after the first "Answer:", in the case it was written in: a lower-case one is no option's letter."""
    match = re.search(rf"(?i)Answer[ \t]*:[ \t]*\$?([{re.escape(letters)}])\$?", text)
    return match[1] if match else None


def first_answer_in_any_language(text: str, letters: str) -> str | None:
    """The letter after the first "Answer:" in the first language that has one, markdown and LaTeX removed."""
    for mark in _REMOVED:
        text = text.replace(mark, "")
    for answer in _ANSWER:
        others = "|".join(f"[{group}]" for group in ("أ-د", *"অবডঢＡＢＣＤ"))
        if match := re.search(f"(?i){answer}[ \\t]*([{re.escape(letters)}]|{others})", text):
            return _LETTERS.get(match[1], match[1])
    return None
