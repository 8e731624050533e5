"""What a protocol asks for follows from its axes, over the whole catalogue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from choicewise.protocols.catalogue import entries, resolve
from choicewise.protocols.protocol import NEUTRAL, RENDERED, Protocol, family
from choicewise.protocols.readings import READINGS

ENTRIES = {
    "letters": {
        *("mmlu/original", "mmlu/original-pr13", "mmlu/harness-v0.4", "mmlu/harness-v0.4-early", "mmlu/harness-v1"),
        *("mmlu/olmes-mcf", "options/batch-calibrated", "options/choices-only", "options/contextual-calibrated"),
        *("options/permuted-cyclic", "options/permuted-full", "options/pride", "options/spellings"),
        "mmlu-flan/original",
        *("mmlu/lighteval", "mmlu/lighteval-original"),
    },
    "letters with answers": {"mmlu/letter-text"},
    "whole answers": {"mmlu/harness-v0"},
    "cloze": {
        *("compat/lm-eval", "compat/minicons", "compat/sglang-select", "compat/surprisal", "mmlu/cloze"),
        *("mmlu/olmes-cf", "options/cloze", "options/quoted-mean-forward", "options/quoted-mean-masked"),
        *("options/quoted-sum-forward", "options/quoted-sum-surprisal", "options/surprisal"),
        *("encoder-decoder/lm-eval", "encoder-decoder/minicons", "masked-lm/minicons"),
        *("masked-lm/pseudo-loglikelihood", "masked-lm/pseudo-loglikelihood-within-word"),
    },
    "generated answers": {
        *("mmlu/helm", "options/free-opencompass", "options/free-simple-evals"),
        *("options/free-simple-evals-multilingual", "options/quoted-mean-generate"),
    },
    "chains of thought": {"options/chain-of-thought"},
    "embeddings": {"options/embedding"},
    "noisy channel": {"options/noisy-channel"},
    "ratings": {"options/rating"},
    "yes or no": {"options/yes-no"},
}


def test_every_entry_of_the_catalogue_has_its_family() -> None:
    families: dict[str, set[str]] = {}
    for entry in entries():
        if entry.name.partition("/")[0] not in (
            "compat",
            "encoder-decoder",
            "masked-lm",
            "mmlu",
            "mmlu-flan",
            "options",
        ):
            continue
        (name,) = {family(protocol) for protocol in entry.protocols.values()}  # the score changes nothing
        families.setdefault(name, set()).add(entry.name)
    assert families == ENTRIES


def test_an_option_in_the_context_is_asked_for_as_one_in_the_continuation() -> None:
    assert family(resolve("winogrande/harness")["winogrande/harness"]) == "cloze"


def test_only_what_is_asked_decides() -> None:
    (protocol,) = resolve("mmlu/original").values()
    other = replace(protocol, benchmark="own", header="", shots=0, shot_split=None, sampler="none", ties="split")
    assert family(other) == "letters"
    assert family(replace(other, continuation=" {choice}")) == "whole answers"
    assert family(replace(other, continuation=" {choice}", question="{question}\nAnswer:")) == "cloze"
    assert family(replace(other, continuation=" {{letter}} {choice}")) == "whole answers"  # braces, no hole
    assert family(replace(other, continuation=" yes")) == "loglikelihood"


@pytest.mark.parametrize(("reading", "name"), [("loglikelihood", RENDERED), ("embedding", "embeddings")])
def test_requests_from_elsewhere_do_not_show_what_they_ask(reading: str, name: str) -> None:
    axes = {**NEUTRAL, "reading": reading, "score": READINGS[reading].scores[0]}
    assert family(Protocol(benchmark="own", requests="0" * 64, **axes)) == name
