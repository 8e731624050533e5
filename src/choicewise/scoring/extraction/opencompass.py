"""How OpenCompass finds the first option in a text.

Patterns and their order: open-compass/opencompass text_postprocessors.py@14ca958, first_option_postprocess.  A missing
comma there joins two patterns into one ("故选A只有B对"), so that neither is ever tried alone; it is kept, because
numbers were published with it.  The last pattern takes the first letter anywhere, the article "A" included.
"""

import re

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
