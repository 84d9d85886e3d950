"""Pages for colocation, gangs, recommendations, configuration and search, and how a keyboard and a reader use them."""

import re
from typing import Any, cast

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Route, expect
from support.projector.browser import DASHBOARD_MARKS
from support.projector.synthetic_cluster import SyntheticCluster
from support.projector.synthetic_colocation import CONFIG, GANG, GANG_MEMBERS

pytestmark = DASHBOARD_MARKS

VIEWS = (
    "cluster", "nodes", "colocation", "health", "pods", "pending", "gangs", "quotas", "reservations", "descheduling",
    "recommendations", "configuration", "events", "compare?from=600&at=1500", "search?text=api",
)  # fmt: skip


def test_colocation_shows_who_disturbed_whom_and_where_best_effort_is_held_back(page: Page) -> None:
    page.goto("/#/colocation")
    answer = page.request.get("/api/colocation").json()
    cluster = page.request.get("/api/cluster").json()
    expect(page.locator(".tile", has_text="Nodes held back").locator(".value")).to_have_text(
        str(answer["suppressed_nodes"])
    )
    expect(page.locator(".tile", has_text="CPU reclaimed")).to_contain_text(f"of {cluster['cpu_milli'] // 1000:,}")
    expect(page.locator(".tile", has_text="Disturbed now").locator(".value")).to_have_text("1")
    pair = answer["pairs"][0]
    row = page.get_by_role("region", name="Who disturbed whom", exact=True).locator("tbody tr").first
    expect(row).to_contain_text(pair["suspect"]["name"])
    expect(row).to_contain_text(pair["name"])
    assert answer["suppressed_nodes"] >= 1
    assert all(each["be_quota_us"] // 100 < each["batch_cpu_requested"] for each in answer["suppressed"])
    expect(page.locator(".tile", has_text="Nodes held back").locator(".detail")).to_have_text(
        f"of {answer['limited_nodes']} nodes with a quota"
    )
    held = page.get_by_role("region", name="Nodes that hold best effort back", exact=True)
    expect(held.locator("tbody tr")).to_have_count(len(answer["suppressed"]))
    expect(held).to_contain_text("pods of higher QoS use")
    contentions = page.get_by_role("region", name="Contentions", exact=True)
    expect(contentions).to_contain_text("the quota of best-effort pods was lowered to 2 cores")
    expect(contentions.locator("tbody tr", has_text="lasts")).to_have_count(1)
    expect(page.get_by_role("region", name="Evictions by agents", exact=True)).to_contain_text("BEMemoryEvict")
    row.get_by_role("link", name=pair["name"]).click()
    expect(page.locator("h1")).to_contain_text(pair["name"])


def test_colocation_of_a_past_moment_has_no_later_disturbances(page: Page, cluster: SyntheticCluster) -> None:
    detected = next(event.seq for event in cluster.facts if event.type == "InterferenceDetected")
    page.goto(f"/#/colocation?at={detected - 1}")
    expect(page.locator("#view")).to_contain_text("No contention was detected.")
    page.goto(f"/#/colocation?at={detected}")
    expect(page.get_by_role("region", name="Contentions", exact=True).locator("tbody tr")).to_have_count(1)


def test_a_gang_shows_its_members_and_what_it_waits_for(page: Page) -> None:
    page.goto("/#/gangs")
    row = page.locator("table.gangs tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("/".join(GANG))
    expect(row).to_contain_text(f"0 of {GANG_MEMBERS}")
    expect(row).to_contain_text("Insufficient memory")
    expect(row.locator(".lane")).to_have_attribute("aria-label", f"0 running, 0 placed, {GANG_MEMBERS} pending")
    row.get_by_role("link").click()
    expect(page.locator("h2").first).to_have_text(f"Pods of the gang {GANG[1]}")
    expect(page.locator("table.list tbody tr")).to_have_count(GANG_MEMBERS)


def test_a_recommendation_shows_its_amounts_and_their_bounds(page: Page) -> None:
    page.goto("/#/recommendations")
    row = page.locator("table.recommendations tbody tr")
    expect(row).to_have_count(1)
    for text in ("checkout/api", "Deployment/checkout-api", "1.25 cores", "0.8 cores – 2.4 cores", "3 GiB", "1,440"):
        expect(row).to_contain_text(text)


def test_the_configuration_shows_each_change_with_its_author_and_its_lines(page: Page) -> None:
    page.goto("/#/configuration")
    panel = page.get_by_role("region", name="/".join(CONFIG))
    expect(panel.locator(".phase")).to_have_text("newest version refused")
    expect(panel.locator(".error")).to_contain_text("must be between 0 and 100, but was 160")
    steps = panel.locator("ol > li")
    expect(steps).to_have_count(4)
    expect(steps.first).to_contain_text("by manager/1")
    second = steps.nth(2)
    second.locator("summary").click()
    expect(second.locator(".diff .removed")).to_contain_text('"cpuReclaimThresholdPercent": 60')
    expect(second.locator(".diff .added")).to_contain_text('"cpuReclaimThresholdPercent": 65')
    steps.first.locator("summary").click()
    expect(steps.first.locator(".diff .added")).to_contain_text('"cpuReclaimThresholdPercent": 160')


def test_search_finds_pods_nodes_objects_and_facts(page: Page, cluster: SyntheticCluster) -> None:
    page.goto("/#/cluster")
    page.keyboard.press("/")
    page.keyboard.type("spare")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"#/search\?text=spare"))
    objects = page.get_by_role("region", name="Objects")
    expect(objects).to_contain_text("reservations")
    objects.get_by_role("link", name="spare").click()
    expect(page.locator("table.reservations")).to_contain_text("spare")
    placed = next(event for event in reversed(cluster.facts) if event.type == "PodPlaced")
    for text, region, found in (
        ("node-a-000", "Nodes", "node-a-000"),
        (placed.ref.id, "Pods", "/"),
        (str(placed.seq), "Facts", "PodPlaced"),
        (placed.event_id, "Facts", f"{placed.seq:,}"),
    ):
        page.locator("#search input").fill(text)
        page.locator("#search input").press("Enter")
        expect(page.locator("h1")).to_have_text(f"Search: {text}")
        expect(page.get_by_role("region", name=region)).to_contain_text(found)
    page.get_by_role("region", name="Facts").get_by_role("link").first.click()
    expect(page.locator(".bar .note").last).to_contain_text(f"only {placed.ref.kind} {placed.ref.id}")
    expect(page.locator(".tail .row").first).to_be_visible()


def test_search_that_finds_nothing_says_so(page: Page) -> None:
    page.goto("/#/search?text=no-such-thing")
    expect(page.get_by_role("status").filter(has_text="nothing matches")).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_is_usable_with_a_screen_reader(page: Page, theme: str) -> None:
    """axe-core finds no violation of WCAG 2 A and AA on any page."""
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    problems: dict[str, list[str]] = {}
    pod = page.request.get("/api/pods?limit=1").json()["pods"][0]["uid"]
    for view in (*VIEWS, f"pods/{pod}", "nodes/node-a-000"):
        page.goto(f"/#/{view}")
        expect(page.locator("#moment")).to_contain_text("position")
        expect(page.locator("#view > :not(.loading)").first).to_be_visible()
        options = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
        found = Axe().run(page, options=options)  # pyright: ignore[reportUnknownMemberType]  its types are partial
        response = cast("dict[str, list[dict[str, Any]]]", found.response)  # pyright: ignore[reportUnknownMemberType]
        problems[view] = [
            f"{each['id']}: {each['nodes'][0]['html'][:160]} ({len(each['nodes'])})" for each in response["violations"]
        ]
    assert {view: found for view, found in problems.items() if found} == {}


@pytest.mark.parametrize("width", [1600, 1024, 901, 900, 390])
def test_every_view_is_visible_in_the_navigation(width: int, page: Page) -> None:
    """At 900 pixels and below, a button opens the navigation; Escape and a link of it close it."""
    page.set_viewport_size({"width": width, "height": 860})
    page.goto("/#/cluster")
    expect(page.locator("#moment")).to_contain_text("position")
    links = page.locator("nav a")
    expect(links).to_have_count(len(VIEWS) - 1)
    menu = page.get_by_role("button", name="Views")
    if width <= 900:
        expect(links.first).to_be_hidden()
        menu.click()
        expect(page.locator("nav a[aria-current]")).to_be_focused()
    else:
        expect(menu).to_be_hidden()
    for link in links.all():
        expect(link).to_be_in_viewport(ratio=1)
    if width <= 900:
        page.keyboard.press("Escape")
        expect(links.first).to_be_hidden()
        expect(menu).to_be_focused()
        menu.click()
        page.get_by_role("link", name="Pods", exact=True).click()
        expect(page).to_have_url(re.compile("#/pods"))
        expect(links.first).to_be_hidden()


@pytest.mark.parametrize("width", [1440, 390])
def test_no_page_is_wider_than_the_window(width: int, page: Page) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    pod = page.request.get("/api/pods?phase=running&limit=1").json()["pods"][0]["uid"]
    wider: dict[str, int] = {}
    for view in (*VIEWS, f"pods/{pod}", "nodes/node-a-000"):
        page.goto(f"/#/{view}")
        expect(page.locator("#moment")).to_contain_text("position")
        expect(page.locator("#view > :not(.loading)").first).to_be_visible()
        wider[view] = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert {view: more for view, more in wider.items() if more > 0} == {}


def test_nodes_are_sorted_filtered_and_drawn_as_a_map(page: Page) -> None:
    nodes = page.request.get("/api/nodes").json()["nodes"]
    page.goto("/#/nodes")
    rows = page.locator("table.nodes tbody tr")
    expect(rows).to_have_count(len(nodes))
    page.get_by_role("button", name="Pods", exact=True).click()
    most = max(node["pods"] for node in nodes)
    expect(rows.first.locator("td[data-label=Pods]")).to_have_text(str(most))
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Pods")
    page.get_by_role("button", name="Pods", exact=True).click()
    expect(rows.last.locator("td[data-label=Pods]")).to_have_text(str(most))
    cordoned = {node["name"] for node in nodes if node["unschedulable"]}
    page.get_by_label("State", exact=True).select_option("unschedulable")
    expect(rows).to_have_count(len(cordoned))
    assert {row.locator("a").inner_text() for row in rows.all()} == cordoned
    expect(page.locator(".bar .note").first).to_have_text(f"{len(cordoned)} of {len(nodes)} nodes")
    page.get_by_role("button", name="Map").click()
    expect(page.locator(".heat canvas")).to_have_attribute("aria-label", re.compile(rf"^{len(cordoned)} nodes by"))
    page.get_by_role("button", name="List").click()
    page.get_by_label("State", exact=True).select_option("")
    page.get_by_label("Name or taint").fill("node-b-004")
    expect(rows).to_have_count(1)
    rows.first.get_by_role("link").click()
    expect(page.locator("h1")).to_have_text("node-b-004")
    expect(page.locator("nav a[aria-current=page]")).to_have_text("Nodes")
    page.goto("/#/nodes?state=held")
    expect(rows).to_have_count(sum(node["be_held_back"] for node in nodes))


def test_a_node_states_its_taints_its_conditions_and_its_drain(page: Page) -> None:
    name = "node-a-003"
    taints = "dedicated=gpu:NoSchedule drain.descheduler.koordinator.sh/drain-node=drain-3:NoSchedule"
    ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}

    def troubled(route: Route) -> None:
        answer = route.fetch().json()
        answer["node"] |= {"conditions": "NotReady", "taints": taints, "unschedulable": True}
        answer["object"]["status"]["conditions"] = [ready]
        route.fulfill(json=answer)

    page.route(f"**/api/nodes/{name}*", troubled)
    page.goto(f"/#/nodes/{name}")
    states = page.locator(".title .states")
    for text in ("NotReady", "closed by a drain", "no report for"):
        expect(states).to_contain_text(text)
    lines = page.locator(".state-lines")
    for text in ("Ready is Unknown (NodeStatusUnknown)", "dedicated=gpu:NoSchedule", "zone-a"):
        expect(lines).to_contain_text(text)
    lines.get_by_role("link", name="drain-3").click()
    expect(page).to_have_url(re.compile("#/descheduling"))


def test_health_names_what_is_wrong_and_leads_there(page: Page) -> None:
    page.goto("/#/health")
    nodes = page.request.get("/api/nodes").json()["nodes"]
    silent = sum(node["silent_seconds"] is not None for node in nodes)
    checks = page.locator(".checks li")
    expect(checks.filter(has_text=f"{silent} nodes are without a fresh usage report")).to_have_count(1)
    expect(checks.filter(has_text="The newest version of 1 ConfigMap was refused")).to_contain_text("/".join(CONFIG))
    expect(checks.filter(has_text="No node has a bad condition").locator(".good")).to_have_count(1)
    wrong = checks.locator(".state:not(.good)").count()
    expect(page.get_by_role("status").filter(has_text="finding")).to_have_text(
        f"{wrong} findings of {checks.count()} checks"
    )
    page.get_by_role("button", name="Compute the hash").click()
    expect(page.locator("#view")).to_contain_text(page.request.get("/api/hash").json()["hash"])
    checks.filter(has_text="unschedulable").get_by_role("link").click()
    expect(page.locator("table.nodes tbody tr")).to_have_count(sum(node["unschedulable"] for node in nodes))


def test_a_node_whose_agent_only_reports_has_an_agent(page: Page) -> None:
    """The agent of Koordinator writes NodeMetrics. No fact of it says that it started."""

    def of_koordinator(route: Route) -> None:
        answer = route.fetch().json()
        for node in answer["nodes"]:
            node["host"] = ""
        answer["nodes"][0]["reported_at"] = "2026-11-20T07:30:00.000000Z"
        for node in answer["nodes"][1:]:
            node["reported_at"] = None
        route.fulfill(json=answer)

    page.route("**/api/nodes*", of_koordinator)
    page.goto("/#/nodes")
    row = page.locator("table.nodes tbody tr")
    expect(row.first.locator("td[data-label=Agent]")).to_have_text("only reports")
    expect(row.first.locator("td[data-label=Status]")).not_to_contain_text("no agent")
    expect(row.nth(1).locator("td[data-label=Agent]")).to_have_text("none")
    page.get_by_label("State", exact=True).select_option("agentless")
    expect(row.filter(has_text="only reports")).to_have_count(0)
    others = row.count()
    page.goto("/#/health")
    expect(page.locator(".checks li", has_text=f"{others} nodes are without an agent")).to_have_count(1)


def test_nothing_moves_by_itself(page: Page) -> None:
    page.emulate_media(reduced_motion="reduce")
    for view in VIEWS:
        page.goto(f"/#/{view}")
        expect(page.locator("#moment")).to_contain_text("position")
        moving = page.evaluate(
            """() => [...document.querySelectorAll("*")].filter((each) => { const style = getComputedStyle(each);
                 return style.animationName !== "none" || parseFloat(style.transitionDuration) > 0 || style.scrollBehavior === "smooth"; }).length"""  # noqa: E501
        )
        assert (moving, page.evaluate("document.getAnimations().length")) == (0, 0)


def test_pods_are_on_one_line_and_sorted(page: Page) -> None:
    page.goto("/#/pods")
    rows = page.locator("table.pods tbody tr")
    expect(rows).to_have_count(100)
    heights = rows.evaluate_all("rows => rows.map((row) => row.offsetHeight)")
    assert max(heights) - min(heights) <= 2, "a long reason is cut"
    reason = page.locator("button.cut").first
    reason.click()
    expect(reason).to_have_class("cut open")
    total = page.request.get("/api/pods?limit=1").json()["total"]
    page.get_by_role("button", name="CPU", exact=True).click()
    expect(page.locator(".bar .note").first).not_to_contain_text("newest")
    page.get_by_role("button", name=f"Show more ({total - 100})").click()
    page.get_by_role("button", name=f"Show more ({total - 200})").click()
    expect(rows).to_have_count(total)
    shown = [float(text.replace(",", "")) for text in page.locator("td[data-label=CPU]").all_inner_texts()]
    assert shown == sorted(shown, reverse=True)


def test_bars_of_scores_show_what_differs_in_colours_that_do_not_repeat(page: Page) -> None:
    page.goto("/")
    drawn = page.evaluate(
        """async () => {
             const { explanation, tintsOf } = await import("/assets/explanation.js");
             const parts = Object.fromEntries([..."abcdefghijk"].map((name, at) => [`Plugin${name}`, at]));
             const top = [{ node: "n1", total: 385, parts: { ...parts, Taints: 300, Zero: 0 } },
                          { node: "n2", total: 300, parts: { ...Object.fromEntries(Object.keys(parts).map((name) => [name, 0])), Taints: 300, Zero: 0 } }];
             const shown = explanation({ nodes_considered: 2, nodes_feasible: 2, top, policy_version: "" }, "n1");
             return { keys: [...shown.querySelectorAll(".keys")].at(-1).textContent, bars: [...shown.querySelectorAll(".track")].map((track) => track.childElementCount),
                      tints: new Set(tintsOf(Object.keys(parts)).values()).size }; }"""  # noqa: E501
    )
    assert drawn["bars"] == [10, 0]
    assert drawn["tints"] == 11
    assert "the same on all 2: Taints 300" in drawn["keys"]
    assert "Zero" not in drawn["keys"]


def test_a_page_that_is_drawn_again_keeps_the_focus(page: Page) -> None:
    page.goto("/#/gangs")
    for focused in ("table.gangs a", "div.table[role=region]"):
        page.locator(focused).first.focus()
        page.locator("table.gangs").evaluate("table => { table.id = 'drawn-before' }")
        expect(page.locator("#drawn-before")).to_have_count(0)
        expect(page.locator(focused).first).to_be_focused()


def test_a_keyboard_reaches_the_page_and_its_links(page: Page) -> None:
    page.goto("/#/gangs")
    expect(page.locator("table.gangs")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.locator("#skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#view")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.locator("table.gangs a")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("h2").first).to_have_text(f"Pods of the gang {GANG[1]}")
    expect(page).to_have_title("Pods · Koordstream")
    expect(page.locator("nav a[aria-current=page]")).to_have_text("Pods")
