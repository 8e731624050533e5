"""The pages of submissions in a browser: sent without script, accessible at three widths, in two themes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.browser import WIDTHS, barriers, needs_axe, needs_chromium, tabs
from tests.helpers.submissions import SUBMIT, Clock, Evaluating, evaluating, write_sent

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluating]:
    """One submission in each state; long and hostile names among them."""
    folder = tmp_path_factory.mktemp("evaluating")
    sent = write_sent(folder / "sent")
    with evaluating(folder / "board", clock=Clock()) as server:
        server.submit("fake:hash", dtype="float32")
        done = server.lease("a worker")
        assert done is not None
        server.finish(done, sent)
        server.submit("org/broken", revision="main")
        failed = server.lease("<b>worker</b>" + "w" * 60)
        reason = "org/broken has weights that are no safetensors: pytorch_model.bin" + "x" * 300
        assert failed is not None
        server.queue.fail(failed.submission.id, failed.secret, reason, again=False)
        server.submit("org/" + "long-name-" * 15)
        running = server.lease("another")
        assert running is not None
        server.queue.renew(running.submission.id, running.secret, 1234, 5678)
        server.submit("org/back", dtype="float16")
        back = server.lease("a third")
        assert back is not None
        server.queue.fail(back.submission.id, back.secret, "https://huggingface.co can't be reached", again=True)
        server.submit("bundled:nothing")
        server.submit("org/<script>alert(1)<b>", revision="main")
        server.submit("org/waits", revision="v1.0")
        server.settle(lambda library: any(run.rows for run in library.snapshot.board.runs))
        yield server


@pytest.fixture
def tab(browser: Any, board: Evaluating) -> Iterator[Callable[..., Any]]:
    with tabs(browser, board.address) as opened:
        yield opened


def addresses(board: Evaluating) -> dict[str, str]:
    """The page of each state, and the list."""
    records = board.ask("/submissions.json").json["submissions"]
    states = {each["state"]: f"/submission/{each['id']}" for each in records}
    back = next(f"/submission/{each['id']}" for each in records if each["not_before"])
    return {"list": "/submissions", **states, "back": back, "there": f"{states['done']}?there"}


def test_every_state_has_a_page(board: Evaluating) -> None:
    assert set(addresses(board)) == {"list", "waiting", "back", "there", "leased", "failed", "refused", "done"}


def test_a_model_is_submitted_without_script(board: Evaluating, tab: Callable[..., Any]) -> None:
    page = tab(board.address, script=False)
    page.get_by_role("link", name="Submit a model").click()
    page.get_by_label("model", exact=True).fill("org/by-hand")
    page.get_by_label("revision").fill("v2")
    page.get_by_label("dtype").select_option("bfloat16")
    page.get_by_label("token").fill(SUBMIT)
    page.get_by_role("button", name="Submit").click()
    assert "/submission/" in page.url
    assert page.locator("h1").text_content() == "org/by-hand waits for a worker."
    record = board.record(page.url.rpartition("/")[2])
    assert (record["model"], record["revision"], record["dtype"]) == ("org/by-hand", "v2", "bfloat16")
    page.get_by_role("link", name="submissions").click()
    assert page.get_by_role("link", name="org/by-hand").count() == 1


def test_what_is_wrong_stands_on_the_form_which_keeps_what_was_typed(board: Evaluating, browser: Any) -> None:
    page = browser.new_page()  # whose console may say that it was refused
    page.goto(f"{board.address}/submissions")
    page.get_by_label("model", exact=True).fill("/etc/passwd")
    page.get_by_label("token").fill(SUBMIT)
    page.get_by_role("button", name="Submit").click()
    assert "takes no models called /etc/passwd" in page.locator("h1").text_content()
    assert page.get_by_label("model", exact=True).input_value() == "/etc/passwd"
    assert page.get_by_label("token").input_value() == ""
    page.close()


def test_a_page_leads_to_the_runs_and_the_board_to_submissions(board: Evaluating, tab: Callable[..., Any]) -> None:
    page = tab(f"{board.address}{addresses(board)['done']}")
    page.locator("#runs a").first.click()
    assert "/run/" in page.url


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window(board: Evaluating, tab: Callable[..., Any], width: int, theme: str) -> None:
    for name, address in addresses(board).items():
        page = tab(f"{board.address}{address}", width, theme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name


@needs_axe
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_has_no_serious_violation(board: Evaluating, browser: Any, theme: str) -> None:
    pages = {name: f"{board.address}{address}" for name, address in addresses(board).items()}
    assert barriers(browser, pages, theme) == {}


def test_names_are_text(board: Evaluating, tab: Callable[..., Any]) -> None:
    for address in addresses(board).values():
        page = tab(f"{board.address}{address}")
        assert page.locator("script").count() == 0
        assert page.locator("main b b, dd b").count() == 0


def test_a_token_is_not_shown(board: Evaluating, tab: Callable[..., Any], tmp_path: Path) -> None:
    page = tab(f"{board.address}/submissions")
    assert page.get_by_label("token").get_attribute("type") == "password"
    for address in addresses(board).values():
        assert SUBMIT not in board.ask(address).text
