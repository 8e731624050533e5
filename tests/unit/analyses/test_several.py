"""What is printed of bad items, of signal and noise, and of estimates: what there is room for, and what it means."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from choicewise.extensions.analyses.audit import Audit, BadItem, ConstantItem, Judgement
from choicewise.extensions.analyses.audit_report import audit_tables
from choicewise.extensions.analyses.sample import SampleEstimate
from choicewise.extensions.analyses.sample_report import estimate_lines, estimate_table
from choicewise.extensions.analyses.sampling import Estimate
from choicewise.extensions.analyses.signal import Follows, Separation, Signal, SignalRow
from choicewise.extensions.analyses.signal_report import signal_tables
from choicewise.table import MOST, Table, as_json, terminal
from choicewise.util.text import plain
from tests.helpers.messages import Gist
from tests.helpers.printed import printed
from tests.helpers.rows import made

NAMES = ("mmlu/original", "mmlu/cloze:sum", "mmlu/helm")


def item(
    name: str,
    verdict: str,
    *under: str,
    rest: float = -0.5,
    metric: str = "acc",
    question: str = "",
) -> BadItem:
    bad = {"right": 0.25, "rest": rest, "scale": -0.1, "isotonic": -0.05, "bad": True}
    good = {"right": 0.7, "rest": 0.4, "scale": 0.3, "isotonic": 0.2, "bad": False}
    values = dict.fromkeys(under, bad)
    if verdict in ("one", "some"):
        values |= {protocol: good for protocol in NAMES if protocol not in under}
    judgements = []
    for protocol, statistics in values.items():
        judgements.append(Judgement(protocol=protocol, metric=metric, models=12, **statistics))  # type: ignore[arg-type]
    return BadItem(
        item=name, subject="tides", question=question, verdict=verdict, under=tuple(judgements)
    )


def audited(
    *bad: BadItem, protocols: Sequence[str] = NAMES, constant: Sequence[ConstantItem] = ()
) -> Audit:
    models = tuple(f"m{n}" for n in range(12))
    return Audit(
        dataset="quiz",
        data="#D123456",
        models=models,
        protocols=tuple(protocols),
        duplicates=(),
        items=100,
        shared=100,
        judged=90,
        bad=bad,
        constant=tuple(constant),
    )


def tables_of(report: Audit | Signal) -> list[Table]:
    return list(audit_tables(report) if isinstance(report, Audit) else signal_tables(report))


def lines(report: Audit | Signal, most: int | None = MOST) -> list[str]:
    return printed(
        *(terminal(table, most) for table in tables_of(report) if not table.data), width=120
    )


def test_items_are_shown_with_their_statistics_question_and_protocols() -> None:
    shown = lines(
        audited(
            item("q1", "all", *NAMES, question="How deep\nis the sea?"),
            item("q2", "one", NAMES[1], rest=-0.61),
        )
    )
    text = " ".join(" ".join(shown).split())
    counts = "1 bad under every protocol, 1 under one only"
    assert f"quiz #D123456: 90 of 100 items judged by 12 models under 3 protocols; {counts}" in text
    assert (
        "q1 tides How deep⏎is the sea? 25.0 −0.50 −0.10 −0.05 mmlu/original, mmlu/cloze:sum" in text
    )
    assert "q2 tides 25.0 −0.61 −0.10 −0.05 mmlu/cloze:sum" in text
    assert "a wrong key" in text
    assert "fault of its format" in text
    assert "up to 5% are so by chance" in text
    assert max(map(len, shown)) <= 120


def test_twenty_items_of_a_verdict_are_shown_and_all_of_them_when_asked() -> None:
    bad = [item(f"a{n}", "all", *NAMES) for n in range(MOST + 5)] + [
        item(f"o{n}", "one", NAMES[0]) for n in range(3)
    ]
    report = audited(*bad)
    shown = lines(report)
    assert sum(line.startswith("a") and "tides" in line for line in shown) == MOST
    assert "5 more rows" in shown
    every = lines(report, most=None)
    assert sum("tides" in line for line in every) == len(bad)
    judgements = as_json(next(table for table in tables_of(report) if table.name == "judgements"))
    assert len(judgements["rows"]) == sum(len(each.under) for each in bad)


def test_other_metrics_have_no_percent() -> None:
    text = "\n".join(lines(audited(item("q1", "", NAMES[0], metric="bpb"), protocols=NAMES[:1])))
    assert "0.250" in text
    assert "25.0" not in text
    assert "under one protocol; 1 bad\n" in text


def test_items_that_say_nothing_are_counted_and_those_never_right_named() -> None:
    constant = [ConstantItem(f"q{n}", "", "", 1.0) for n in range(3)]
    constant += [ConstantItem(f"w{n}", "", "", 0.0) for n in range(14)]
    constant += [ConstantItem("c", "", "", 0.25)]
    report = replace(audited(constant=constant), shared=60, duplicates=("mmlu/cloze:char_mean",))
    text = " ".join(" ".join(lines(report)).split())
    assert text == Gist("right with every model ... 3 items")
    assert text == Gist("wrong with every model ... 14 items")
    assert "w13" in text
    assert text == Gist("the same with every ... 1 item")
    assert "60 of 100 are shared" in text
    assert "mmlu/cloze:char_mean" in text
    (all_of_them,) = [table for table in tables_of(report) if table.name == "constant"]
    assert len(all_of_them.rows) == len(constant)


def signal_row(
    name: str, metric: str = "acc", follows: float | None = None, snr: float = 9.87
) -> SignalRow:
    of_items = None
    if follows is not None:
        of_items = Follows(
            low=follows - 0.1, median=follows, high=follows + 0.1, items=80, models=9
        )
    separation = Separation(signal=0.2631, noise=0.0203, snr=snr, se=2.5, models=3, checkpoints=5)
    return SignalRow(
        protocol=name,
        metric=metric,
        separation=separation,
        accuracy=2 / 3,
        follows=of_items,
        chain="chain",
    )


def measured(*rows: SignalRow, step: float | None = None) -> Signal:
    return Signal(
        dataset="quiz",
        data="#D123456",
        unit="step",
        trainings={"org/m": (1000.0, 2000.0, 3000.0)},
        last={"org/m": 3},
        models=("a", "b", "c"),
        step=step,
        rows=rows,
        notes=("beware of \x1b[31mthis",),
    )


def test_signal_and_noise_are_shown_with_both_counts_and_what_to_beware_of() -> None:
    text = " ".join(" ".join(lines(measured(signal_row("mmlu/original"), step=2000))).split())
    assert text == Gist("signal over 3 models ... last 3 of 3 checkpoints ... org/m")
    assert "mmlu/original acc 26.3 2.0 9.9 ± 2.5 66.7" in text
    assert "already" not in text
    assert "rank at step 2,000 as at the end" in text
    assert r"beware of \x1b[31mthis" in text
    unknown = signal_row("p", snr=math.nan)
    unknown = replace(
        unknown, separation=replace(unknown.separation, se=math.nan), accuracy=math.nan
    )
    assert "order" not in " ".join(lines(measured(unknown)))
    assert "p acc 26.3 2.0 -" in " ".join(" ".join(lines(measured(unknown))).split())


def test_the_chain_is_a_table_of_its_own_in_its_order() -> None:
    rows = [
        signal_row(f"q@{name}", name, rho)
        for name, rho in (("acc", 0.2), ("logprob", 0.9), ("brier", 0.4))
    ]
    shown = lines(measured(*rows))
    at = [
        next(
            n for n, line in enumerate(shown) if line.split()[:1] == [f"q@{name}"] and "to" in line
        )
        for name in ("logprob", "brier", "acc")
    ]
    assert at == sorted(at)
    assert "0.80 to 1.00" in shown[at[0]]
    assert "over 9 models of one family" in " ".join(shown)
    assert "middle half" not in " ".join(lines(measured(rows[0])))


def test_many_protocols_are_shown_in_part() -> None:
    rows = [signal_row(f"p{n}") for n in range(MOST + 3)]
    assert "3 more rows" in lines(measured(*rows))
    assert "p22" in " ".join(lines(measured(*rows), most=None))


def estimate(protocol: str, metric: str = "acc", worth: bool = True) -> SampleEstimate:
    known = Estimate(
        value=0.634,
        se=0.012 if worth else 0.021,
        ci_low=0.61,
        ci_high=0.66,
        n=500,
        population=14_042,
        plain=0.628,
        plain_se=0.019,
    )
    return SampleEstimate(
        model="model",
        dataset="isles",
        data="#D123456",
        selection="sample of 500, seed 1",
        protocol=protocol,
        signature="",
        metric=metric,
        others=("a", "b"),
        estimate=known,
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
    assert f" {plain(0.634)} ± {plain(0.012)} of all " in " ".join(
        estimate_lines([estimate("mmlu/helm", "bpb")], [])
    )
    assert list(estimate_lines([], rows)) == []


def test_every_estimate_has_a_line_in_the_table() -> None:
    shown = printed(
        terminal(estimate_table([estimate("mmlu/helm"), estimate("mmlu/original")])), width=110
    )
    assert (
        sum(
            "63.4 ± 1.2" in line and "61.0 – 66.0" in line and "62.8 ± 1.9" in line
            for line in shown
        )
        == 2
    )


@pytest.mark.parametrize("worth", [True, False])
def test_an_estimate_is_worth_what_a_sample_of_that_size_would_have(worth: bool) -> None:
    own = estimate("mmlu/helm", worth=worth).estimate
    spread = own.plain_se / math.sqrt((1 - own.n / own.population) / own.n)
    as_many = own.n * own.worth
    assert spread * math.sqrt((1 - as_many / own.population) / as_many) == pytest.approx(own.se)
