"""What the dashboard asks for: nothing while nobody sees it, nothing twice, and no more when an answer is an error."""

import re
from collections import Counter
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Request, Response, Route, expect
from support.projector.browser import DASHBOARD_MARKS, PATIENCE_MILLIS

pytestmark = DASHBOARD_MARKS

HIDDEN = """isHidden => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => isHidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
"""Hides the page from its reader, or shows it again."""


@pytest.fixture
def timed(browser: Browser, base_url: str) -> Iterator[Page]:
    """A page whose clock goes on only when a test says so. It may complain: some answers are errors."""
    page = browser.new_page(base_url=base_url, viewport={"width": 1366, "height": 860})
    page.set_default_timeout(PATIENCE_MILLIS)
    page.clock.install()
    yield page
    page.close()


def counted(page: Page) -> Counter[str]:
    """Counts what the page asks for from now on, by path."""
    asked: Counter[str] = Counter()

    def note(request: Request) -> None:
        asked[request.url.split("?")[0].split("/", 3)[3]] += 1

    page.on("request", note)
    return asked


def pass_turns(page: Page, turns: int) -> None:
    """Lets so many turns of asking for the status pass."""
    for _ in range(turns):
        with page.expect_response("**/api/status"):
            page.clock.run_for(2000)
        settle(page)


def settle(page: Page) -> None:
    """Waits until the page has done what an answer was for; its own timers stand still."""
    page.evaluate(
        "() => new Promise((done) => { const { port1, port2 } = new MessageChannel(); port1.onmessage = done; port2.postMessage(0); })"  # noqa: E501
    )


def held_back(page: Page, url: str) -> list[Route]:
    """The next request for an address, which gets no answer until a test continues it."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route(url, hold, times=1)
    return held


def open_page(page: Page, name: str) -> None:
    """Opens a page and waits until it has what it asks for at first, on a busy machine after some turns."""
    answered: list[Response] = []
    page.on("response", lambda response: answered.append(response) if "/api/marks" in response.url else None)
    page.goto(f"/#/{name}")
    waited = 0
    while not answered:
        page.wait_for_timeout(100)
        waited += 1
        if waited % 50 == 0:
            page.clock.run_for(2000)
    expect(page.locator("#moment")).to_contain_text("live · position")
    settle(page)


def test_the_scale_waits_for_its_next_turn_when_its_answer_is_an_error(timed: Page) -> None:
    timed.route("**/api/marks*", lambda route: route.fulfill(status=503, json={"error": "Postgres is away"}))
    asked = counted(timed)
    open_page(timed, "quotas")
    pass_turns(timed, 5)
    assert (asked["api/marks"], asked["api/series"]) == (1, 1)
    pass_turns(timed, 12)
    assert (asked["api/marks"], asked["api/series"]) == (2, 2)


def test_a_page_asks_in_one_round_when_it_was_hidden_and_shown_during_a_request(timed: Page) -> None:
    open_page(timed, "quotas")
    held = held_back(timed, "**/api/status")
    with timed.expect_request("**/api/status"):
        timed.clock.run_for(2000)
    with timed.expect_response("**/api/status"):
        timed.evaluate(HIDDEN, arg=True)
        timed.evaluate(HIDDEN, arg=False)
    with timed.expect_response("**/api/status"):
        held[0].continue_()
    settle(timed)
    asked = counted(timed)
    pass_turns(timed, 3)
    assert asked["api/status"] == 3


def test_a_page_that_was_hidden_during_a_request_asks_for_nothing_more(timed: Page) -> None:
    open_page(timed, "quotas")
    held = held_back(timed, "**/api/status")
    with timed.expect_request("**/api/status"):
        timed.clock.run_for(2000)
    timed.evaluate(HIDDEN, arg=True)
    with timed.expect_response("**/api/status"):
        held[0].continue_()
    settle(timed)
    asked = counted(timed)
    timed.clock.run_for(20_000)
    settle(timed)
    assert asked == Counter()


def test_the_live_facts_end_when_nobody_sees_them_and_begin_again(timed: Page) -> None:
    open_page(timed, "events")
    with timed.expect_event("requestfailed", lambda request: "/api/events/stream" in request.url):
        timed.evaluate(HIDDEN, arg=True)
    with timed.expect_request("**/api/events/stream*"):
        timed.evaluate(HIDDEN, arg=False)


def test_facts_that_a_reader_has_paused_stay_when_the_page_is_shown_again(timed: Page) -> None:
    open_page(timed, "events")
    timed.get_by_role("button", name="Pause").click()
    timed.locator(".tail .row").first.evaluate("row => { row.id = 'read' }")
    timed.evaluate(HIDDEN, arg=True)
    asked = counted(timed)
    timed.evaluate(HIDDEN, arg=False)
    pass_turns(timed, 2)
    assert "api/events" not in asked
    expect(timed.locator("#read")).to_be_visible()


@pytest.mark.parametrize(("left", "field"), [("events", "Text"), ("pods", "Name")])
def test_a_text_does_not_bring_back_the_page_that_the_reader_has_left(timed: Page, left: str, field: str) -> None:
    open_page(timed, left)
    timed.get_by_label(field, exact=True).fill("api")
    timed.get_by_role("link", name="Gangs").click()
    expect(timed.locator("table.gangs")).to_be_visible()
    timed.clock.run_for(1000)
    settle(timed)
    expect(timed).to_have_url(re.compile("#/gangs$"))


def test_an_opened_fact_is_asked_for_once_until_it_is_closed(timed: Page) -> None:
    open_page(timed, "events")
    asked = counted(timed)
    opened, other = (timed.locator(".tail .row:not(.fold)").nth(place) for place in (0, 1))
    seq = (opened.locator(".seq").inner_text()).replace(",", "")
    opened.click()
    expect(timed.locator(".tail pre")).to_contain_text('"occurred_at"')
    timed.route("**/api/events/*", lambda route: route.fulfill(status=503, json={"error": "Postgres is away"}))
    other.click()
    expect(timed.locator(".tail pre").last).to_have_text("503: Postgres is away")
    expect(timed.locator(".tail pre").first).to_contain_text('"occurred_at"')
    assert asked[f"api/events/{seq}"] == 1
    opened.click()
    expect(timed.locator(".tail pre")).to_have_count(1)


def test_a_text_is_sought_among_the_facts_of_the_aggregate_that_the_address_names(timed: Page) -> None:
    pod = timed.request.get("/api/pods?phase=running&limit=1").json()["pods"][0]["uid"]
    open_page(timed, f"events?kind=pod&id={pod}")
    timed.get_by_label("Text", exact=True).fill("PodPlaced")
    with timed.expect_request("**/api/events?*text=PodPlaced*") as found:
        timed.clock.run_for(250)
    assert f"id={pod}" in found.value.url
    expect(timed.locator("#view .bar .note").last).to_have_text(f"only pod {pod}")
    with timed.expect_request("**/api/events?kind=node&*") as found:
        timed.get_by_label("Kind").select_option("node")
    assert "&id=" not in found.value.url
    expect(timed.locator("#view .bar .note").last).to_have_text("")


def test_older_facts_are_asked_for_once_and_a_change_of_the_filter_ends_that(timed: Page) -> None:
    open_page(timed, "events")
    older = timed.get_by_role("button", name="Show older")
    asked = counted(timed)
    held = held_back(timed, "**/api/events?*before=*")
    older.click()
    older.click()
    settle(timed)
    assert asked["api/events"] == 1
    with timed.expect_event("requestfailed", lambda request: "before=" in request.url):
        timed.get_by_label("Kind").select_option("nodespec")
    expect(timed.locator(".tail .row .type").first).to_have_text(re.compile("^NodeSpec"))
    expect(timed.locator(".tail .row .type").filter(has_not_text="NodeSpec")).to_have_count(0)
    assert len(held) == 1
    timed.get_by_label("Kind").select_option("")
    timed.route("**/api/events?*before=*", lambda route: route.fulfill(status=503, json={"error": "Postgres is away"}))
    older.click()
    expect(timed.get_by_role("status").filter(has_text="Postgres is away")).to_be_visible()
