"""Published rules that find an option's letter, or a number, in generated text, by name and commit."""

from collections.abc import Callable, Mapping

from choicewise.scoring.extraction import gsm8k, harness, inspect, opencompass, simple_evals

Rule = Callable[[str, str], str | None]
"""From a text and the letters of an item's options to a letter, or None where the rule finds none."""

RULES: Mapping[str, Rule] = {
    "simple-evals@f517a91": simple_evals.first_answer,
    "simple-evals-multilingual@f517a91": simple_evals.first_answer_in_any_language,
    "opencompass@14ca958": opencompass.first_option,
    "harness-letter@4e7e0d4": harness.first_letter,
    "inspect@0.3.42": inspect.any_letters,
    "inspect@0.3.121": inspect.first_answer,
    "inspect@0.3.221": inspect.last_answer,
    "inspect@0.3.264": inspect.last_answer_unwrapped,
}
"""Rules for letters.

A rule whose source changes gets a second name; the name that numbers were published with stays.
"""

Comparison = Callable[[str, str], bool | None]
"""From a text and a solution to whether their numbers agree; None where the text has none."""

NUMBERS: Mapping[str, Comparison] = {
    "gsm8k@b281b09": gsm8k.marked,
    "gsm8k-strict@4e7e0d4": gsm8k.strict,
    "gsm8k-flexible@4e7e0d4": gsm8k.flexible,
}
"""Rules for numbers, likewise."""
