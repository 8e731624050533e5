"""What is printed of bad items, of signal and noise, and of estimates: what there is room for, and what it means."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from choicewise.extensions.analyses.audit import Audit, BadItem, ConstantItem, Judgement
from choicewise.extensions.analyses.sample import SampleEstimate
from choicewise.extensions.analyses.several_report import (
    MOST,
    audit_tables,
    estimate_lines,
    estimate_tables,
    signal_tables,
)
from choicewise.extensions.analyses.signal import Follows, Separation, Signal, SignalRow
from choicewise.scoring.sampling import Estimate
from choicewise.util.text import plain
from tests.helpers.printed import printed
from tests.helpers.rows import made

NAMES = ("mmlu/original", "mmlu/cloze:sum", "mmlu/helm")


def item(name: str, verdict: str, *under: str, rest: float = -0.5, metric: str = "acc", question: str = "") -> BadItem:
    judged = [Judgement(each, metric, 0.25, 12, rest, -0.1, -0.05, bad=True) for each in under]
    judged += [
        Judgement(each, metric, 0.7, 12, 0.4, 0.3, 0.2, bad=False)
        for each in NAMES
        if verdict in ("one", "some") and each not in under
    ]
    return BadItem(name, "tides", question, verdict, tuple(judged))


def audited(*bad: BadItem, protocols: Sequence[str] = NAMES, constant: Sequence[ConstantItem] = ()) -> Audit:
    models = tuple(f"m{n}" for n in range(12))
    return Audit("quiz", "#D123456", models, tuple(protocols), (), 100, 100, 90, bad, tuple(constant))


def lines(report: Audit | Signal, every: bool = False) -> list[str]:
    tables = audit_tables(report, every) if isinstance(report, Audit) else signal_tables(report, every)
    return printed(*tables, width=100)


def test_items_are_shown_with_their_statistics_question_and_protocols() -> None:
    shown = lines(
        audited(
            item("q1", "all", *NAMES, question="How deep\nis the sea?"),
            item("q2", "one", NAMES[1], rest=-0.61),
        )
    )
    text = " ".join(" ".join(shown).split())
    assert shown[0] == (
        "quiz #D123456: 90 of 100 items judged by 12 models under 3 protocols; 1 bad under every protocol, 1"
    )
    assert "q1 (tides) 25.0 −0.50 −0.10 −0.05 all 3 How deep⏎is the sea?" in text
    assert "q2 (tides) 25.0 −0.61 −0.10 −0.05 mmlu/cloze:sum" in text
    assert "a wrong key" in text
    assert "a fault of its format" in text
    assert "up to 5% are so by chance" in text
    assert max(map(len, shown)) <= 100


def test_about_twenty_items_are_shown_and_all_of_them_when_asked() -> None:
    bad = [item(f"a{n}", "all", *NAMES) for n in range(15)] + [item(f"o{n}", "one", NAMES[0]) for n in range(15)]
    bad += [item(f"s{n}", "some", *NAMES[:2]) for n in range(5)]
    report = audited(*bad)
    shown, every = "\n".join(lines(report)), "\n".join(lines(report, every=True))
    assert sum(f"{each.item} (tides)" in shown for each in bad) == MOST
    assert all(f"{each.item} (tides)" in every for each in bad)
    assert "the worst 10 of 15" in shown
    assert "the worst" not in every
    assert "5 under some" in shown


def test_one_protocol_has_no_column_of_protocols_and_other_metrics_have_no_percent() -> None:
    report = audited(item("q1", "", NAMES[0], metric="bpb"), protocols=NAMES[:1])
    text = "\n".join(lines(report))
    assert "bad under" not in text.partition("\n")[2].partition("item-rest: ")[0].replace("bad under the only", "")
    assert "mean" in text
    assert "%  " not in text
    assert "under one protocol; 1 bad\n" in text


def test_items_that_say_nothing_are_counted_and_those_never_right_named() -> None:
    constant = [ConstantItem(f"q{n}", "", "", 1.0) for n in range(3)]
    constant += [ConstantItem(f"w{n}", "", "", 0.0) for n in range(14)]
    constant += [ConstantItem("c", "", "", 0.25)]
    report = replace(audited(constant=constant), shared=60, alike=("mmlu/cloze:char_mean",))
    text = " ".join(" ".join(lines(report)).split())
    assert "right with every model, so nothing can be said: 3 items" in text
    assert (
        "wrong with every model, so look at the key: 14 items: w0, w1, w2, w3, w4, w5, w6, w7, w8, w9 and 4 more"
        in text
    )
    assert "the same with every model, so nothing can be said: 1 item" in text
    assert "60 of 100 are shared by all of them" in text
    assert "mmlu/cloze:char_mean" in text
    assert "w13" in " ".join(lines(report, every=True))


def signal_row(name: str, metric: str = "acc", follows: float | None = None, snr: float = 9.87) -> SignalRow:
    own = None if follows is None else Follows(follows - 0.1, follows, follows + 0.1, 80, 9)
    return SignalRow(name, metric, Separation(0.2631, 0.0203, snr, 2.5, 3, 5), 2 / 3, own, "chain")


def measured(*rows: SignalRow, step: float | None = None) -> Signal:
    at, last = {"org/m": (1000.0, 2000.0, 3000.0)}, {"org/m": 3}
    return Signal("quiz", "#D123456", "step", at, last, ("a", "b", "c"), step, rows, ("beware of \x1b[31mthis",))


def test_signal_and_noise_are_shown_with_both_counts_and_what_to_beware_of() -> None:
    text = " ".join(" ".join(lines(measured(signal_row("mmlu/original"), step=2000))).split())
    assert "signal over 3 models, noise over the last 3 of 3 checkpoints of org/m" in text
    assert "mmlu/original acc 26.3 2.0 9.9 ± 2.5 66.7" in text
    assert "already" not in text
    assert "stand at step 2,000 as at the end" in text
    assert r"beware of \x1b[31mthis" in text
    unknown = signal_row("p", snr=math.nan)
    unknown = replace(unknown, separation=replace(unknown.separation, se=math.nan))
    assert "order" not in " ".join(lines(measured(unknown)))
    assert "p acc 26.3 2.0 -" in " ".join(" ".join(lines(measured(unknown))).split())


def test_the_chain_is_a_table_of_its_own_in_its_order() -> None:
    rows = [signal_row(f"q@{name}", name, rho) for name, rho in (("acc", 0.2), ("logprob", 0.9), ("brier", 0.4))]
    shown = lines(measured(*rows))
    at = [
        next(n for n, line in enumerate(shown) if line.split()[:1] == [f"q@{name}"] and "to" in line)
        for name in ("logprob", "brier", "acc")
    ]
    assert at == sorted(at)
    assert "0.80 to 1.00" in shown[at[0]]
    assert "over 9 models of one family" in " ".join(shown)
    assert "middle half" not in " ".join(lines(measured(rows[0])))


def test_many_protocols_are_shown_in_part() -> None:
    rows = [signal_row(f"p{n}") for n in range(MOST + 3)]
    assert "3 more protocols with less" in lines(measured(*rows))
    assert "p22" in " ".join(lines(measured(*rows), every=True))


def estimate(protocol: str, metric: str = "acc", worth: bool = True) -> SampleEstimate:
    known = Estimate(0.634, 0.012 if worth else 0.021, 0.61, 0.66, 500, 14_042, 0.628, 0.019)
    return SampleEstimate(
        "model", "isles", "#D123456", "sample of 500, seed 1", protocol, "", metric, ("a", "b"), known
    )


def test_the_estimate_of_the_headline_stands_beside_that_of_the_sample() -> None:
    rows = [made(name, selection="sample of 500, seed 1") for name in NAMES]
    shown = list(estimate_lines([estimate("mmlu/helm"), estimate("mmlu/original")], rows))
    assert " ".join(shown) == (
        "model under mmlu/original: 63.4 ± 1.2 % of all 14,042 questions by 2 other models (AIPW, worth 2.4 times the "
        "questions); the sample alone 62.8 ± 1.9 %"
    )
    assert max(map(len, shown)) <= 100
    assert "worth" not in " ".join(estimate_lines([estimate("mmlu/helm", worth=False)], rows))
    assert f" {plain(0.634)} ± {plain(0.012)} of all " in " ".join(estimate_lines([estimate("mmlu/helm", "bpb")], []))
    assert list(estimate_lines([], rows)) == []


def test_every_estimate_has_a_line_in_the_table() -> None:
    shown = printed(*estimate_tables([estimate("mmlu/helm"), estimate("mmlu/original")]), width=110)
    assert sum("63.4 ± 1.2" in line and "61.0 – 66.0" in line and "62.8 ± 1.9" in line for line in shown) == 2
    assert list(estimate_tables([])) == []


@pytest.mark.parametrize("worth", [True, False])
def test_an_estimate_is_worth_what_a_sample_of_that_size_would_have(worth: bool) -> None:
    own = estimate("mmlu/helm", worth=worth).estimate
    spread = own.plain_se / math.sqrt((1 - own.n / own.population) / own.n)
    as_many = own.n * own.worth
    assert spread * math.sqrt((1 - as_many / own.population) / as_many) == pytest.approx(own.se)
