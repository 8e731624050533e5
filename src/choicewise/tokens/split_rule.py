"""Where a text may be split so that the tokens of the parts are the tokens of the text.

The places follow from the pipeline that ``tokenizer.json`` declares, and only pipelines for which it can be proven have
any; the proofs are in ``docs/design/encoding.md``.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from choicewise.tokens.token_bytes import declared_steps

NEWLINE_STARTS = re.compile(r"\n(?<=[!-~]\n)")
"""A newline after a visible ASCII character; the text is split before it."""
NEWLINE_ENDS = re.compile(r"\n(?=[!-~])")
"""A newline before a visible ASCII character; the text is split after it."""

WORD_STARTS = re.compile(r"(?=(?<=[!-~]) [A-Za-z])")
"""Before a space between a visible ASCII character and an ASCII letter."""
WORD = re.compile(" [A-Za-z]")
"""What follows such a place."""
LABEL = re.compile(r"\n*[!-~]{1,16}(?<=[.:)])(?= [A-Za-z])")
"""What a line begins with (``Question:``, ``A.``), up to the start of a word."""

_MARKS_AND_SPACE = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
SPLITS = {"Llama 3": _WORDS + r"|\p{N}{1,3}" + _MARKS_AND_SPACE, "Qwen 2": _WORDS + r"|\p{N}" + _MARKS_AND_SPACE}
"""The expressions by which published tokenizers split a text so that a newline ends a piece."""


class SplitRule(NamedTuple):
    """Kinds of place at which texts may be split.

    ``newline`` matches the newlines at which to split, before them when ``before``, else after.  With ``words`` they
    may be split at ``WORD_STARTS``, too.  With ``prefixed`` the tokenizer puts a dummy space before every text it is
    given, which a part from the middle of a text must lose.  A text that contains one of ``hazards`` is never split.
    """

    newline: re.Pattern[str]
    before: bool
    prefixed: bool
    hazards: tuple[str, ...]
    words: bool = False

    def parts(self, text: str) -> list[str]:
        """The parts of ``text``, which joined are the text.  Of words, only one after a line's label begins a part."""
        places = [0]
        starts_line = self.before or not text.startswith("\n")
        if self.words and starts_line and (label := LABEL.match(text)):
            places.append(label.end())
        if "\n" not in text:
            return [text] if len(places) == 1 else [text[: places[1]], text[places[1] :]]
        for match in self.newline.finditer(text):
            places.append(match.start() if self.before else match.end())
            if self.words and (label := LABEL.match(text, match.end())):
                places.append(label.end())
        return [text[start:end] for start, end in zip(places, [*places[1:], len(text)], strict=True)]

    def last_place(self, text: str, ends: Iterable[str]) -> int:
        """Where ``text`` may be split last whichever of ``ends`` follows it, or 0 where it may not be split.

        That is its end where words follow it, else a newline.
        """
        if self.words and "!" <= text[-1:] <= "~" and all(map(WORD.match, ends)):
            return len(text)
        end = len(text)
        while (place := text.rfind("\n", 0, end)) >= 0:
            if match := self.newline.match(text, place):
                return match.start() if self.before else match.end()
            end = place
        return 0

    def last_paragraph(self, text: str) -> int:
        """Where the part that begins at the last blank line starts, or 0 where the text is not split there."""
        blank = text.rfind("\n\n")
        match = self.newline.match(text, blank if self.before else blank + 1) if blank >= 0 else None
        return 0 if match is None else match.start() if self.before else match.end()


def find_split_rule(tokenizer: Mapping[str, Any]) -> SplitRule | None:
    """Where texts may be split for the parsed ``tokenizer.json``, or None where nothing is proven of its pipeline."""
    model = tokenizer["model"]
    normalizers, splitters = (declared_steps(tokenizer.get(key)) for key in ("normalizer", "pre_tokenizer"))
    if model.get("type") != "BPE" or model.get("dropout") or not all(map(_keeps_newlines, normalizers)):
        return None
    before = not _ends_at_newlines(splitters)
    prefixed = any(
        step["type"] in ("Prepend", "Metaspace") and step.get("prepend_scheme") != "never"
        for step in (*normalizers, *splitters)
    )
    # GPT-2's own splitting: no piece holds a visible character and then white space
    gpt2 = len(splitters) == 1 and _byte_level(splitters[0], use_regex=True)
    proven = gpt2 or _never_merges_newlines(model, splitters) if before else not prefixed
    newline = NEWLINE_STARTS if before else NEWLINE_ENDS
    added: Sequence[Mapping[str, Any]] = tokenizer.get("added_tokens") or []
    hazards = [token for token in added if prefixed or token["lstrip"] or token["rstrip"] or token["single_word"]]
    if not proven or any(newline.search(token["content"]) for token in added):
        return None
    if not all(_seen_in_text(token, normalizers) for token in hazards):
        return None
    # A space before a letter belongs to the letter's piece in all these expressions, and added tokens hold none.
    words = (gpt2 or not before) and not any(WORD_STARTS.search(token["content"]) for token in added)
    return SplitRule(newline, before, prefixed, tuple(token["content"] for token in hazards), words)


def _keeps_newlines(normalizer: Mapping[str, Any]) -> bool:
    """Whether it handles the text before a newline and the text from it on separately, and keeps visible ASCII."""
    match normalizer:
        case {"type": "NFC"} | {"type": "Prepend", "prepend": "▁"}:
            return True
        case {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}:
            return True
    return False


def _seen_in_text(token: Mapping[str, Any], normalizers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a text in which the tokenizer finds the added token contains it before normalisation, too."""
    if not normalizers or not token["normalized"]:
        return True
    composed = any(normalizer["type"] == "NFC" for normalizer in normalizers)
    return not composed and re.fullmatch("[!-~]+", token["content"]) is not None


def _byte_level(splitter: Mapping[str, Any], *, use_regex: bool) -> bool:
    wanted = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": use_regex}
    return {"use_regex": True, **splitter}.items() >= wanted.items()


def _ends_at_newlines(splitters: Sequence[Mapping[str, Any]]) -> bool:
    match splitters:
        case [{"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}, level]:
            return regex in SPLITS.values() and _byte_level(level, use_regex=False)
    return False


def _never_merges_newlines(model: Mapping[str, Any], splitters: Sequence[Mapping[str, Any]]) -> bool:
    """Whether BPE over all of the text never merges a newline with what precedes it, except with newlines."""
    level = any(_byte_level(splitter, use_regex=False) for splitter in splitters)
    whole = level or all(splitter["type"] == "Metaspace" and not splitter["split"] for splitter in splitters)
    if not whole or len(splitters) > 1:
        return False
    if model.get("ignore_merges") or model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        return False
    newlines = ("Ċ",) if level else ("\n",)
    if newlines[0] not in model["vocab"]:
        if level or not model.get("byte_fallback") or "<0x0A>" not in model["vocab"]:
            return False  # an unknown newline may be fused with other unknown characters
        newlines = ("<0x0A>",)
    return not any(right.startswith(newlines) and not left.endswith(newlines) for left, right in model["merges"])
