"""The table that a page begins with, and its title."""

from pathlib import Path

import pytest

from choicewise.page.document import Content
from choicewise.page.overview import MOST_WORDS, overviews, title
from choicewise.page.study import Study, read_study
from choicewise.report.brief import extremes
from choicewise.results.headline import headline
from choicewise.util.text import percent
from tests.helpers.page_runs import Page, write_run

ASKED = ("mmlu/original", "mmlu/helm", "mmlu/cloze:sum", "mmlu/olmes-cf:char_mean")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Two models, of which one was asked in fewer families."""
    folder = tmp_path_factory.mktemp("runs")
    few = write_run(folder / "few", "fake:oracle", ASKED[:1])
    return read_study([few, write_run(folder / "many", "fake:hash", ASKED)])


def rows_of(study: Study) -> list[list[str]]:
    (overview,) = overviews(study)
    page = Page(f'<div role="region" aria-label="overview">{overview.html}</div>')
    return page.tables["overview"]


def test_a_column_is_the_headline_of_its_family(study: Study) -> None:
    (overview,) = overviews(study)
    many = study.runs[1]
    families = [row.identity.family for row in overview.protocols]
    assert families == ["letters", "cloze", "generated answers"]
    for row in overview.protocols:
        first = headline(many.rows, (row.identity.family,))
        assert first is not None
        assert row.identity.protocol == first.identity.protocol
    heads = rows_of(study)[0]
    assert all(name in head for name, head in zip(overview.names, heads[1:], strict=False))


def test_a_cell_is_a_number_of_its_run_or_a_dash(study: Study) -> None:
    _, first, second = rows_of(study)
    assert (first[0], second[0]) == ("few", "many")
    (overview,) = overviews(study)
    for text, name in zip(second[1:], overview.names, strict=False):
        assert text.startswith(percent(study.runs[1].row_of[name].value))
    assert first[2 : 1 + len(overview.names)] == ["–"] * (len(overview.names) - 1)
    ends = extremes(study.runs[1].rows)
    assert ends is not None
    assert second[-2] == f"{percent(ends[0].value)} – {percent(ends[1].value)}"


def test_a_title_is_short(study: Study) -> None:
    for runs in (study.runs, study.runs[:1], study.runs[1:]):
        part = Study(runs)
        assert 3 < len(title(part, overviews(part)).split()) <= MOST_WORDS


@pytest.mark.parametrize("models", [("oracle", "anti-oracle"), ("oracle", "oracle")])
def test_a_title_of_several_models_names_the_one_that_leads(
    models: tuple[str, str], tmp_path: Path
) -> None:
    runs = []
    for name, model in zip(("merrow", "tern"), models, strict=True):
        run = write_run(
            tmp_path / name, f"fake:{model}", ("mmlu/original", "mmlu/cloze:sum"), questions=30
        )
        runs.append(run)
    study = read_study(runs)
    text = title(study, overviews(study))
    leads = models[0] != models[1]
    assert ("merrow" in text) == leads
    assert ("letters" in text and "cloze" in text) == leads
    assert "tern" not in text


def test_the_first_ladder_is_between_two_headlines(study: Study) -> None:
    _, way = Content(study).ways
    assert way is not None
    many = study.runs[1]
    families = {row.identity.family for row in many.rows}
    headlines = {headline(many.rows, (family,)).identity.protocol for family in families}  # type: ignore[union-attr]
    assert set(way) <= headlines
    assert many.row_of[way[0]].value <= many.row_of[way[1]].value
