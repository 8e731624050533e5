"""Boards and submissions in a browser: no error, sorted and filtered, accessible at three widths, in two themes."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from choicewise.extensions.board.library import read_snapshot
from choicewise.extensions.board.pages import write_board
from choicewise.extensions.board.queue import Lease
from tests.helpers.board import Served, rename, served, write_run
from tests.helpers.browser import WIDTHS, barriers, needs_axe, needs_chromium, tabs
from tests.helpers.messages import Gist
from tests.helpers.submissions import SUBMIT, Clock, Evaluating, evaluating, write_sent

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three models on the same questions."""
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "hash")
    write_run(folder / "oracle", model="fake:oracle")
    rename(write_run(folder / "anti", model="fake:anti-oracle"), "anti")
    return folder


@pytest.fixture(scope="module")
def board(runs: Path) -> Iterator[Served]:
    with served(runs) as server:
        server.settle(lambda library: len(library.snapshot.ranges) == 12)
        while "refresh" in server.ask(addresses(server)["run"]).headers:
            pass  # its page is being made
        yield server


@pytest.fixture(scope="module")
def written(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same board as files."""
    return write_board(read_snapshot([runs]), tmp_path_factory.mktemp("written"))


@pytest.fixture(scope="module")
def submissions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluating]:
    """A board with one submission in each state; long and hostile names among them."""
    folder = tmp_path_factory.mktemp("evaluating")
    sent = write_sent(folder / "sent")
    with evaluating(folder / "board", clock=Clock()) as server:

        def leased(model: str, worker: str, **further: str) -> Lease:
            server.submit(model, **further)
            lease = server.lease(worker)
            assert lease is not None
            return lease

        server.finish(leased("fake:hash", "a worker", dtype="float32"), sent)
        failed = leased("org/broken", "<b>worker</b>" + "w" * 60, revision="main")
        reason = "org/broken has weights that are no safetensors: pytorch_model.bin" + "x" * 300
        server.queue.fail(failed.submission.id, failed.secret, reason, again=False)
        running = leased("org/" + "long-name-" * 15, "another")
        server.queue.renew(running.submission.id, running.secret, 1234, 5678)
        back = leased("org/back", "a third", dtype="float16")
        server.queue.fail(
            back.submission.id, back.secret, "https://huggingface.co can't be reached", again=True
        )
        server.submit("bundled:nothing")
        server.submit("org/<script>alert(1)<b>", revision="main")
        server.submit("org/waits", revision="v1.0")
        server.settle(lambda library: any(run.rows for run in library.snapshot.board.runs))
        yield server


@pytest.fixture
def tab(browser: Any, board: Served) -> Iterator[Callable[..., Any]]:
    with tabs(browser, board.address) as opened:
        yield opened


@pytest.fixture
def submissions_tab(browser: Any, submissions: Evaluating) -> Iterator[Callable[..., Any]]:
    with tabs(browser, submissions.address) as opened:
        yield opened


def models(page: Any, table: str = ".board") -> list[str]:
    """The names in the first column that can be seen, from the top."""
    return [each.text_content() for each in page.locator(f"{table} tbody tr:visible th a").all()]


def addresses(board: Served) -> dict[str, str]:
    if isinstance(board, Evaluating):
        return states(board)
    told = board.ask("/board.json").json
    column, run = told["columns"][0], told["runs"][0]["id"]
    model = board.ask("/").text.split('href="/model/')[1].split('"')[0]
    item = f"/item/{column['part']}?id=tides/test/0"
    pages = {
        "board": "/",
        "all": "/?columns=all",
        "model": f"/model/{model}",
        "run": f"/run/{run}",
        "item": item,
    }
    return pages | {"protocol": f"/protocol/{column['p'][1:]}"}


def states(board: Evaluating) -> dict[str, str]:
    """The page of a submission in each state, and the list."""
    records = board.ask("/submissions.json").json["submissions"]
    pages = {each["state"]: f"/submission/{each['id']}" for each in records}
    back = next(f"/submission/{each['id']}" for each in records if each["not_before"])
    return {"list": "/submissions", **pages, "back": back, "there": f"{pages['done']}?there"}


def test_pages_load_without_a_word_in_the_console(board: Served, tab: Callable[..., Any]) -> None:
    for name, address in addresses(board).items():
        page = tab(f"{board.address}{address}")
        assert page.locator("main").count() == 1, name
        assert page.title(), name


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("server", ["board", "submissions"])
def test_nothing_is_wider_than_the_window(
    browser: Any, request: pytest.FixtureRequest, server: str, width: int, theme: str
) -> None:
    shown = request.getfixturevalue(server)
    with tabs(browser, shown.address) as opened:
        for name, address in addresses(shown).items():
            page = opened(f"{shown.address}{address}", width, theme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name


@needs_axe
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("server", ["board", "submissions"])
def test_axe_has_no_serious_violation(
    browser: Any, request: pytest.FixtureRequest, server: str, theme: str
) -> None:
    # The page of a run has tests of its own.
    shown = request.getfixturevalue(server)
    pages = {
        name: f"{shown.address}{address}"
        for name, address in addresses(shown).items()
        if name != "run"
    }
    assert barriers(browser, pages, theme) == {}


def test_the_board_is_sorted_by_clicks_and_keys(board: Served, tab: Callable[..., Any]) -> None:
    page = tab(board.address)
    assert models(page) == ["fake:oracle", "fake:hash", "anti"]
    page.locator(".board").get_by_role("link", name="model", exact=True).click()
    assert models(page) == ["anti", "fake:hash", "fake:oracle"]
    assert "sort=model" in page.url
    page.locator(".headlines").get_by_role("link", name="model", exact=False).press("Enter")
    page.wait_for_url("**order=down**")
    for table in (".board", ".headlines"):  # which are sorted together
        assert models(page, table) == ["fake:oracle", "fake:hash", "anti"]
        assert page.locator(f"{table} th[aria-sort=descending]").count() == 1
    page.go_back()
    assert models(page) == ["anti", "fake:hash", "fake:oracle"]


def test_the_same_address_shows_the_same_state(board: Served, tab: Callable[..., Any]) -> None:
    page = tab(board.address)
    page.get_by_role("searchbox", name="model").fill("fake")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("link", name="cloze", exact=False).first.click()
    state = models(page), page.locator(".names th").all_text_contents()
    assert state[0] == ["fake:oracle", "fake:hash"]
    assert len(state[1]) == 12
    again = tab(page.url)
    assert (models(again), again.locator(".names th").all_text_contents()) == state


def test_a_chosen_family_has_the_ranges_of_its_ranks_at_once(
    board: Served, tab: Callable[..., Any]
) -> None:
    page = tab(board.address)
    page.get_by_role("navigation", name="Columns").get_by_role("link", name="cloze").click()
    page.wait_for_url("**family=cloze**")
    assert " ".join(page.locator(".headlines th.rank").inner_text().split()).endswith(
        "possible (95 %)"
    )
    assert "still being computed" not in page.locator("main").inner_text()


def test_protocols_are_chosen_by_keyboard(board: Served, tab: Callable[..., Any]) -> None:
    page = tab(board.address)
    page.get_by_text("choose protocols").press("Enter")
    page.get_by_label("mmlu/helm").press("Space")
    page.get_by_role("button", name="Show").press("Enter")
    page.wait_for_url("**protocol=mmlu%2Fhelm**")
    assert page.locator(".names th").count() == 3
    assert page.get_by_label("mmlu/helm").is_checked()


def test_everything_served_works_without_script(board: Served, tab: Callable[..., Any]) -> None:
    page = tab(board.address, script=False)
    page.locator(".board").get_by_role("link", name="model", exact=True).click()
    assert models(page) == ["anti", "fake:hash", "fake:oracle"]


def test_links_lead_from_the_board_to_an_item(board: Served, tab: Callable[..., Any]) -> None:
    page = tab(board.address)
    page.get_by_role("link", name="fake:oracle").first.click()
    assert "fake:oracle" in page.locator("h1").text_content()
    page.locator(".numbers a").first.click()
    assert "/protocol/" in page.url
    page.get_by_role("link", name="Board", exact=True).click()
    assert models(page)


def test_numbers_are_those_of_the_json(board: Served, tab: Callable[..., Any]) -> None:
    told = board.ask("/board.json?columns=all").json
    page = tab(f"{board.address}/?columns=all")
    for line, model in zip(page.locator(".board tbody tr").all(), told["models"], strict=True):
        shown = [each.text_content() for each in line.locator("td:not(.median) > b").all()]
        cells = [model["cells"][column["id"]]["value"] for column in told["columns"]]
        assert shown == [f"{100 * value:.1f}" for value in cells]


def test_the_written_board_opens_from_disk(written: Path, tab: Callable[..., Any]) -> None:
    for file in sorted(written.parent.rglob("*.html")):
        tab(file.as_uri())
    page = tab(written.as_uri())
    page.locator(".board").get_by_role("link", name="fake:oracle").click()
    assert "fake:oracle" in page.locator("h1").text_content()
    page.get_by_role("link", name="Board", exact=True).click()
    page.get_by_role("link", name="all 12").click()
    assert page.locator(".names th").count() == 14


def test_the_board_is_printed_on_wide_paper(written: Path, tab: Callable[..., Any]) -> None:
    paper = tab(written.as_uri()).pdf(prefer_css_page_size=True)
    wide, high = (
        float(size) for size in re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", paper)[0]
    )
    assert wide > high


def test_the_written_board_sorts_and_filters(written: Path, tab: Callable[..., Any]) -> None:
    page = tab(written.as_uri())
    assert models(page) == ["fake:oracle", "fake:hash", "anti"]
    page.locator(".board").get_by_role("link", name="model", exact=True).click()
    assert models(page) == ["anti", "fake:hash", "fake:oracle"]
    page.locator(".names a").first.press("Enter")
    assert models(page) == ["fake:oracle", "fake:hash", "anti"]
    page.locator(".names a.sort").nth(1).click()
    assert models(page) == ["fake:oracle", "fake:hash", "anti"]
    page.locator(".names a.sort").nth(1).press("Enter")
    assert models(page) == ["anti", "fake:hash", "fake:oracle"]
    page.get_by_role("searchbox", name="model").fill("FAKE")
    assert models(page) == ["fake:hash", "fake:oracle"]
    again = tab(page.url)
    assert models(again) == ["fake:hash", "fake:oracle"]
    assert set(models(again, ".headlines")) == {"fake:hash", "fake:oracle"}
    assert again.locator(".board th[aria-sort=ascending]").count() == 1
    again.get_by_label("numbers").select_option("none")
    told = json.loads((written.parent / "board.json").read_text())
    sure = {
        model["model"]
        for model in told["models"]
        if not all(cell["warnings"] for cell in model["cells"].values())
    }
    assert set(models(again)) <= sure
    rank = page.locator(".headlines td.rank:visible").first
    assert rank.locator("span").is_visible()
    rank.evaluate(
        "cell => cell.classList.add('out')"
    )  # as where a number of the model is filtered away
    assert not rank.locator("span").is_visible()


def test_the_written_board_shows_its_numbers_without_script(
    written: Path, tab: Callable[..., Any]
) -> None:
    page = tab(written.as_uri(), script=False)
    assert models(page) == ["fake:oracle", "fake:hash", "anti"]
    assert not page.locator("form.choose").is_visible()


def test_every_state_has_a_page(submissions: Evaluating) -> None:
    assert set(states(submissions)) == {
        "list",
        "waiting",
        "back",
        "there",
        "leased",
        "failed",
        "refused",
        "done",
    }


def test_a_model_is_submitted_without_script(
    submissions: Evaluating, submissions_tab: Callable[..., Any]
) -> None:
    page = submissions_tab(submissions.address, script=False)
    page.get_by_role("link", name="Submit a model").click()
    page.get_by_label("model", exact=True).fill("org/by-hand")
    page.get_by_label("revision").fill("v2")
    page.get_by_label("dtype").select_option("bfloat16")
    page.get_by_label("token").fill(SUBMIT)
    page.get_by_role("button", name="Submit").click()
    assert "/submission/" in page.url
    assert page.locator("h1").text_content() == Gist("org/by-hand waits")
    record = submissions.record(page.url.rpartition("/")[2])
    assert (record["model"], record["revision"], record["dtype"]) == (
        "org/by-hand",
        "v2",
        "bfloat16",
    )
    page.get_by_role("link", name="submissions").click()
    assert page.get_by_role("link", name="org/by-hand").count() == 1


def test_what_is_wrong_stands_on_the_form_which_keeps_what_was_typed(
    submissions: Evaluating, browser: Any
) -> None:
    page = browser.new_page()  # whose console may say that it was refused
    page.goto(f"{submissions.address}/submissions")
    page.get_by_label("model", exact=True).fill("/etc/passwd")
    page.get_by_label("token").fill(SUBMIT)
    page.get_by_role("button", name="Submit").click()
    assert "takes no models called /etc/passwd" in page.locator("h1").text_content()
    assert page.get_by_label("model", exact=True).input_value() == "/etc/passwd"
    assert page.get_by_label("token").input_value() == ""
    page.close()


def test_a_page_leads_to_the_runs_and_the_board_to_submissions(
    submissions: Evaluating, submissions_tab: Callable[..., Any]
) -> None:
    page = submissions_tab(f"{submissions.address}{states(submissions)['done']}")
    page.locator("#runs a").first.click()
    assert "/run/" in page.url


def test_names_are_text(submissions: Evaluating, submissions_tab: Callable[..., Any]) -> None:
    for address in states(submissions).values():
        page = submissions_tab(f"{submissions.address}{address}")
        assert page.locator("script").count() == 0
        assert page.locator("main b b, dd b").count() == 0


def test_a_token_is_not_shown(
    submissions: Evaluating, submissions_tab: Callable[..., Any], tmp_path: Path
) -> None:
    page = submissions_tab(f"{submissions.address}/submissions")
    assert page.get_by_label("token").get_attribute("type") == "password"
    for address in states(submissions).values():
        assert SUBMIT not in submissions.ask(address).text
