r"""How Inspect's multiple-choice solver finds the letter in a text, release by release.

Read at UKGovernmentBEIS/inspect_ai, solver/_multiple_choice.py, ``parse_answers`` and, before 0.3.121,
``set_choices_based_on_generated_response``: 775396c (0.3.42), e4a551f (0.3.121), 846da97 (0.3.221), and the packages
0.3.264 and 0.3.285, which read alike.  Each is the rule for one answer (``multiple_correct=False``).
"""

import re
from typing import Final

_LINE: Final = re.compile(r"(?i)^ANSWER\s*:\s*([A-Za-z\d ,]+)\s*(?:$|\n|\.)", re.MULTILINE)
_ANYWHERE: Final = re.compile(r"(?i)ANSWER\s*:\s*([A-Za-z\d ,]+)(?:[^\w]|\n|$|\.)")
_FIRST_LINE: Final = re.compile(r"(?i)^ANSWER\s*:\s*([A-Za-z ,]+)\s*(?:$|\n)", re.MULTILINE)
_FIRST_ANYWHERE: Final = re.compile(r"(?i)ANSWER\s*:\s*([A-Za-z ,]+)(?:[^\w]|\n|$)")
_WRAPPED: Final = (
    (re.compile(r"\x24\s*([A-Za-z\d][A-Za-z\d ,]*?)\s*\x24"), r"\1"),
    (re.compile(r"\*\*\s*([A-Za-z\d][A-Za-z\d ,]*?)\s*\*\*"), r"\1"),
    (re.compile(r"(?i)(^|[:,])(\s*)\(([A-Za-z\d])\)(?=\s*(?:,|\.|\n|\Z))"), r"\1\2\3"),
)


def any_letters(text: str, letters: str) -> str | None:
    """0.3.42 to 0.3.120: every letter in what stands after the first "ANSWER:" is an answer, so one must be alone."""
    match = _FIRST_LINE.search(text) or _FIRST_ANYWHERE.search(text)
    said = {letter for letter in match[1].upper() if letter in letters} if match else set()
    return said.pop() if len(said) == 1 else None


def first_answer(text: str, letters: str) -> str | None:
    """0.3.121 to 0.3.220: what stands after the first "ANSWER:" must be one letter, as it is."""
    match = _LINE.search(text) or _ANYWHERE.search(text)
    said = match[1].strip().rstrip(".") if match else ""
    return said if len(said) == 1 and said in letters else None


def last_answer(text: str, letters: str) -> str | None:
    """0.3.221 to 0.3.263: what stands after the last "ANSWER:" must be one letter, in whichever case.

    From 0.3.261 on a comma may follow it, which is left out here.
    """
    matches = _LINE.findall(text) or _ANYWHERE.findall(text)
    said = matches[-1].strip().rstrip(".").upper() if matches else ""
    return said if len(said) == 1 and said in letters else None


def last_answer_unwrapped(text: str, letters: str) -> str | None:
    """0.3.264 on: the same, once a letter within ``$``, ``**`` or parentheses is unwrapped; a comma may follow it."""
    for pattern, kept in _WRAPPED:
        text = pattern.sub(kept, text)
    matches = _LINE.findall(text) or _ANYWHERE.findall(text)
    tokens = [token for token in matches[-1].strip().rstrip(".").upper().split(",") if token] if matches else []
    return tokens[0] if len(tokens) == 1 and len(tokens[0]) == 1 and tokens[0] in letters else None
