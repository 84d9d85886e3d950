"""The dashboard in headless Chromium, on a believable cluster: every view, slider, themes, no injected text.

With KOORD_SCREENSHOTS=<folder> the pictures of the README are written there, from a larger cluster.
"""

import re
from itertools import groupby, pairwise
from typing import Any

import pytest
from koordcore.events.explanations import PodUnschedulable
from koordctl.render.units import duration_text
from playwright.sync_api import Browser, Page, Route, expect
from support.projector.browser import DASHBOARD_MARKS, EVIL, JAEGER, PATIENCE_MILLIS
from support.projector.synthetic_cluster import SyntheticCluster

pytestmark = DASHBOARD_MARKS


def test_the_cluster_is_drawn_and_a_node_opens(page: Page, cluster: SyntheticCluster) -> None:
    page.goto("/")
    nodes = sum(1 for event in cluster.facts if event.type == "NodeSpecAdded")
    expect(page.locator(".tile", has_text="Nodes").locator(".value")).to_have_text(str(nodes))
    expect(page.locator("#live")).to_have_attribute("aria-pressed", "true")
    canvas = page.locator(".heat canvas")
    expect(canvas).to_have_attribute("aria-label", re.compile(f"{nodes} nodes by Requested CPU"))
    assert colours(page) > 3
    expect(page.locator(".tile", has_text="Nodes").locator(".bad")).to_have_text(f"{nodes} without a fresh report")
    page.get_by_role("button", name="Reclaimed").click()
    expect(canvas).to_have_attribute("aria-label", re.compile("Reclaimed CPU"))
    canvas.hover(position={"x": 20, "y": 20})
    expect(page.locator(".tip b")).to_have_text("node-a-000")
    expect(page.locator(".tip")).to_contain_text("CPU requested")
    expect(page.locator(".chart canvas")).to_have_count(2)
    canvas.click(position={"x": 20, "y": 20})
    expect(page.locator("h1")).to_have_text("node-a-000")
    expect(page.locator("h2", has_text="Why so much is reclaimed")).to_be_visible()
    expect(page.locator(".terms").first).to_contain_text("safety margin")
    expect(page.locator(".title .bad")).to_have_text(re.compile(r"no report for \d+ (days|h|min)"))
    expect(page.locator("#moment")).to_have_text(re.compile(r"live · position [\d,]+ · last event \d+ days ago"))


def test_an_address_without_a_page_says_so_and_a_pod_is_found_by_its_name(page: Page) -> None:
    page.goto("/#/nosuchpage")
    expect(page.locator("h1")).to_have_text("No such page")
    expect(page.locator("#view")).to_contain_text("/nosuchpage")
    page.get_by_role("link", name="Back to the cluster").click()
    expect(page.locator(".heat canvas")).to_be_visible()
    pod = page.request.get("/api/pods?phase=running&limit=1").json()["pods"][0]
    page.goto(f"/#/pod/{pod['namespace']}/{pod['name']}")
    expect(page.locator("h1")).to_have_text(f"{pod['namespace']}/{pod['name']}")
    expect(page.locator(".facts")).to_contain_text(pod["uid"])


def colours(page: Page) -> int:
    """How many colours the heat map shows."""
    count = page.evaluate(
        """() => { const canvas = document.querySelector(".heat canvas");
                   const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
                   const found = new Set();
                   for (let i = 0; i < data.length; i += 4)
                     if (data[i + 3] === 255) found.add([data[i], data[i + 1], data[i + 2]].join());
                   return found.size; }"""
    )
    assert isinstance(count, int)
    return count


def test_the_heat_map_is_used_with_the_keyboard(page: Page) -> None:
    page.goto("/")
    canvas = page.locator(".heat canvas")
    expect(canvas).to_have_attribute("aria-label", re.compile("nodes by"))
    canvas.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".tip b")).to_have_text("node-a-003")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("node-a-003")


def test_the_slider_shows_a_past_moment_and_live_comes_back(page: Page, base_url: str) -> None:
    page.goto("/")
    running = page.locator(".tile", has_text="Pods running").locator(".value")
    expect(running).to_have_text(re.compile(r"\d"))
    now = running.inner_text()
    expect(page.locator("#moment")).to_contain_text("position")
    page.wait_for_function("document.getElementById('slider').value === '2000'")
    page.locator("#slider").fill("500")
    expect(page).to_have_url(re.compile(r"at=2026-11-20T07"))
    expect(page.locator("#live")).to_have_attribute("aria-pressed", "false")
    expect(running).not_to_have_text(now)
    moment = re.search(r"at=([^&]+)", page.url)
    assert moment is not None
    answer = page.request.get(f"{base_url}/api/cluster?at={moment[1]}").json()
    expect(running).to_have_text(f"{answer['pods']['running']:,}")
    page.get_by_role("link", name="Pods", exact=True).click()  # the moment stays
    expect(page).to_have_url(re.compile(r"#/pods\?at="))
    expect(page.locator(".bar .note")).to_contain_text(f"{answer['pods']['running']:,} running")
    page.locator("#live").click()
    expect(page).not_to_have_url(re.compile("at="))
    expect(page.locator("#live")).to_have_attribute("aria-pressed", "true")


def test_marks_below_the_slider_lead_to_changes_evictions_and_disturbances(page: Page, base_url: str) -> None:
    marks = page.request.get(f"{base_url}/api/marks").json()["marks"]
    with page.expect_response("**/api/marks"):
        page.goto("/")
    expect(page.locator("#moment")).to_contain_text("live · position")
    page.wait_for_function(PAINTED)
    page.get_by_role("button", name="Earlier change").click()
    expect(page).to_have_url(re.compile(rf"at={marks[-1]['seq']}$"))
    expect(page.locator("#moment")).to_contain_text(f"position {marks[-1]['seq']:,}")
    page.get_by_role("button", name="Earlier change").click()
    expect(page).to_have_url(re.compile(rf"at={marks[-2]['seq']}$"))
    expect(page.locator("#moment")).to_contain_text(f"position {marks[-2]['seq']:,}")
    page.get_by_role("button", name="Later change").click()
    expect(page).to_have_url(re.compile(rf"at={marks[-1]['seq']}$"))
    expect(page.locator("#moment")).to_contain_text(f"position {marks[-1]['seq']:,}")
    page.get_by_role("button", name="Later change").click()
    expect(page.locator("#live")).to_have_attribute("aria-pressed", "true")
    scale = page.locator("canvas.timeline")
    width = scale.evaluate("canvas => canvas.clientWidth")
    scale.hover(position={"x": width - 8, "y": 6})  # all marks are in the last second
    expect(scale).to_have_attribute("title", re.compile("^(configuration|eviction|disturbance): "))
    scale.click(position={"x": width - 8, "y": 6})
    expect(page).to_have_url(re.compile(rf"at=({'|'.join(str(mark['seq']) for mark in marks)})$"))


PAINTED = """() => { const canvas = document.querySelector("canvas.timeline");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const colours = new Set();
  for (let at = 0; at < data.length; at += 4) if (data[at + 3] === 255) colours.add(data[at] * 65536 + data[at + 1] * 256 + data[at + 2]);
  return colours.size >= 3; }"""  # noqa: E501


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_the_scale_has_whole_times_of_the_zone(browser: Browser, base_url: str, zone: str) -> None:
    context = browser.new_context(base_url=base_url, timezone_id=zone)
    page = context.new_page()
    page.add_init_script(f"localStorage.setItem('koord-zone', '{'utc' if zone == 'UTC' else 'local'}')")
    page.goto("/")
    found = page.evaluate(
        """async () => { const { inSteps } = await import("/assets/timesteps.js");
             const at = Date.UTC(2026, 10, 20, 21, 10, 3);
             return [8000, 90 * 60e3, 5 * 3600e3, 40 * 86400e3].map((long) => inSteps([at, at + long], 6).map(([time, label]) => label)); }"""  # noqa: E501
    )
    context.close()
    offset = "21:" if zone == "UTC" else "02:"
    assert found[0] == [f"{offset}{10 if zone == 'UTC' else 40}:0{second}" for second in (4, 6, 8)] + [
        f"{offset}{10 if zone == 'UTC' else 40}:10"
    ]
    for labels in found[1:]:
        assert 2 <= len(labels) <= 7
        assert all(re.fullmatch(r"\d\d:(00|15|30|45)|\d{4}-\d\d-\d\d", label) for label in labels)


@pytest.mark.parametrize(
    ("begin", "long", "labels"),
    [  # summer time ends on the first of November and begins on the eighth of March, at 2 o'clock
        (
            "2026-10-29T12:00Z",
            6 * 86400,
            [f"2026-{day}" for day in ("10-30", "10-31", "11-01", "11-02", "11-03", "11-04")],
        ),
        ("2026-03-08T04:30Z", 5 * 3600, ["2026-03-08", "01:00", "03:00", "04:00", "05:00"]),
        ("2026-11-01T03:30Z", 5 * 3600, ["2026-11-01", "01:00", "02:00", "03:00"]),
    ],
)
def test_the_scale_has_whole_times_where_summer_time_begins_and_ends(
    browser: Browser, base_url: str, begin: str, long: int, labels: list[str]
) -> None:
    context = browser.new_context(base_url=base_url, timezone_id="America/New_York")
    page = context.new_page()
    page.add_init_script("localStorage.setItem('koord-zone', 'local')")
    page.goto("/")
    found = page.evaluate(
        """async ([begin, long]) => { const { inSteps } = await import("/assets/timesteps.js");
             const at = new Date(begin).getTime();
             return inSteps([at, at + long * 1000], 6).map(([time, label]) => [label, new Date(time).toTimeString().slice(0, 5)]); }""",  # noqa: E501
        [begin, long],
    )
    context.close()
    assert [label for label, _ in found] == labels
    assert all(clock == ("00:00" if "-" in label else label) for label, clock in found)


def test_the_bars_of_the_scale_leave_out_what_was_written_before_its_first_row(page: Page) -> None:
    page.goto("/")
    bars = page.evaluate(
        """async () => { const { factsPerBar } = await import("/assets/timeline.js");
             return factsPerBar({ time: [10, 11, 15, 20], positions: [9000000, 9000004, 9000005, 9000012] }, [10000, 20000], 4); }"""  # noqa: E501
    )
    assert bars == [4, 0, 1, 7]


def test_two_moments_are_compared(page: Page, base_url: str) -> None:
    page.goto("/#/cluster?at=600")
    expect(page.locator("#moment")).to_contain_text("position 600")
    page.get_by_role("button", name="Compare").click()
    expect(page).to_have_url(re.compile(r"#/compare\?from=600&at=600"))
    expect(page.locator("#view")).to_contain_text("No node differs.")
    page.goto("/#/compare?from=600&at=1500")
    before, after = (page.request.get(f"{base_url}/api/cluster?at={at}").json() for at in (600, 1500))
    row = page.get_by_role("region", name="Totals").locator("tr", has_text="Pods running")
    more = after["pods"]["running"] - before["pods"]["running"]
    expect(row.locator("td")).to_have_text(
        ["Pods running", str(before["pods"]["running"]), str(after["pods"]["running"]), f"+{more}"]
    )
    nodes = [
        {node["name"]: node for node in page.request.get(f"{base_url}/api/nodes?at={at}").json()["nodes"]}
        for at in (600, 1500)
    ]
    differing = page.get_by_role("region", name="Nodes that differ").locator("tbody tr")
    first = differing.first.locator("a").inner_text()
    pods = nodes[1][first]["pods"] - nodes[0][first]["pods"]
    expect(differing.first.locator("td").nth(2)).to_have_text(f"{pods:+}".replace("-", "−").replace("+0", "="))
    page.get_by_role("button", name="Swap").click()
    expect(row.locator("td").last).to_have_text(f"−{more}")
    marked = page.request.get(f"{base_url}/api/marks").json()["marks"]
    page.goto(f"/#/compare?from={marked[0]['seq'] - 1}")
    between = page.get_by_role("region", name="In between").locator("tbody tr")
    expect(between).to_have_count(len(marked))
    expect(between.first).to_contain_text(marked[0]["summary"])


def test_a_comparison_asks_for_the_marks_in_between_and_says_which_are_left_out(page: Page) -> None:
    marks = page.request.get("/api/marks").json()["marks"]

    def many(route: Route) -> None:
        answer = route.fetch().json()
        route.fulfill(json={**answer, "marks": [*answer["marks"], marks[0]] * 30, "complete_after": 640})

    page.route("**/api/marks?after=600*", many)
    with page.expect_request("**/api/marks?after=600&before=1501"):
        page.goto("/#/compare?from=600&at=1500")
    expect(page.locator("h2", has_text="In between")).to_contain_text(
        re.compile(r"the newest \d+ of \d+ marks and older ones")
    )


def test_a_tile_and_the_end_of_its_line_tell_one_number(page: Page, cluster: SyntheticCluster) -> None:
    reported = cluster.reports[len(cluster.reports) // 2].origin.occurred_at
    page.goto(f"/#/cluster?at={reported}")
    used = page.locator(".tile", has_text="CPU used").locator(".detail")
    expect(used).to_contain_text("cores")
    chart = page.locator("section", has=page.locator("h2", has_text="CPU over time"))
    told = chart.locator(".u-series", has_text=re.compile("^used")).locator(".u-value")
    expect(told).to_have_text(used.inner_text().split(" ")[0])


def test_all_times_are_utc_until_the_zone_of_the_browser_is_chosen(browser: Browser, base_url: str) -> None:
    context = browser.new_context(base_url=base_url, timezone_id="America/New_York")
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MILLIS)
    page.goto("/#/cluster?at=2026-11-20T07:30:05Z")
    expect(page.locator("#moment")).to_contain_text("2026-11-20 07:30:05 UTC")
    page.locator("#zone").click()
    expect(page.locator("#moment")).to_contain_text("2026-11-20 02:30:05 GMT-5")
    expect(page.locator(".u-legend").first).to_contain_text("GMT-5")
    page.reload()
    expect(page.locator("#zone")).to_have_text("GMT-5")
    expect(page.locator("#moment")).to_contain_text("2026-11-20 02:30:05 GMT-5")
    context.close()


def test_the_page_of_quotas_asks_only_for_quotas(page: Page) -> None:
    page.goto("/#/quotas")
    expect(page.locator("h2").first).to_have_text("0 quotas")
    with page.expect_response("**/api/objects/customspec*") as found:
        page.reload()
    assert found.value.json()["objects"] == []
    assert "prefix=elasticquotas" in found.value.url


def test_a_reservation_shows_what_is_unused_in_its_list_on_its_node_and_in_the_totals(page: Page) -> None:
    page.goto("/#/reservations")
    row = page.locator("table.reservations tbody > tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("spare")
    expect(row).to_contain_text("0 cores of 2 cores")
    expect(row).to_contain_text("app=spare")
    expect(row).to_contain_text("never")
    page.get_by_role("link", name="Cluster", exact=True).click()
    expect(page.locator(".tile", has_text="Reserved, unused")).to_contain_text("1 reservation")
    page.goto("/#/reservations")
    page.get_by_role("link", name="node-a-000").click()
    expect(page.locator("h1")).to_have_text("node-a-000")
    expect(page.locator(".gauge")).to_contain_text("of it unused reserved")


def test_the_last_round_shows_classes_of_nodes_migrations_and_the_hot_minutes_of_a_node(page: Page) -> None:
    page.goto("/#/descheduling")
    answer = page.request.get("/api/rounds?limit=3").json()
    (pool,) = answer["round"]["classified"]
    assert len(answer["rounds"]) == 3
    expect(page.locator(".levels canvas")).to_have_attribute(
        "aria-label", re.compile(f"used CPU: {len(pool['under'])} under, {len(pool['over'])} over")
    )
    expect(page.locator(".keys")).to_contain_text(f"{len(pool['over'])} over: too much is used")
    moved = next(each for each in answer["round"]["attempts"] if each["result"] == "success")
    row = page.locator("table.migrations tbody > tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text(moved["pod"].split("/")[1])
    expect(row).to_contain_text("Running")
    expect(page.locator("table.limits")).to_contain_text(f"migrations per node{moved['node']}")
    expect(page.locator("table.rounds")).to_contain_text("1 no better cluster after the move")
    page.locator(".levels canvas").focus()
    for _ in range(len(page.request.get("/api/nodes").json()["nodes"])):  # the hottest node is the last one
        page.keyboard.press("ArrowRight")
    expect(page.locator(".tip")).to_contain_text("over")
    page.keyboard.press("Enter")
    expect(page.locator("h2", has_text="was hot for")).to_contain_text(moved["node"])


def node_with_shared_gpus(page: Page) -> dict[str, Any]:
    """The devices of the node whose GPUs have most holders."""
    nodes = page.request.get("/api/devices").json()["nodes"]
    found: dict[str, Any] = max(nodes, key=lambda node: len(node["owners"]))
    return found


def test_the_hardware_of_a_node_is_drawn_with_its_holders(page: Page) -> None:
    node = node_with_shared_gpus(page)
    page.goto(f"/#/nodes/{node['node']}")
    panel = page.locator(".hardware")
    expect(panel.locator(".zone")).to_have_count(2)
    hardware = page.request.get(f"/api/nodes/{node['node']}/hardware").json()["hardware"]
    zones = [zone for socket in hardware["sockets"] for zone in socket["zones"]]
    expect(panel.locator(".core")).to_have_count(sum(len(zone["cores"]) for zone in zones))
    expect(panel.locator(".card")).to_have_count(len(node["cards"]))
    shares = sum(len(card["shares"]) for card in node["cards"] if card["type"] == "gpu")
    expect(panel.locator(".fillings i")).to_have_count(shares)
    owner = next(each for each in node["owners"] if any(gpu_of(card, each["uid"]) for card in node["cards"]))
    button = panel.locator(f"button[data-uid='{owner['uid']}']")
    button.hover()
    lit = panel.locator(".mine")
    expect(lit.first).to_be_visible()
    assert all(owner["uid"] in (each.get_attribute("data-uids") or "") for each in lit.all())
    panel.get_by_role("button", name="QoS").click()
    expect(panel.locator(".owners")).to_contain_text(owner["qos"])
    panel.get_by_role("button", name="Pod").click()
    button.click()
    expect(page.locator("h1")).to_contain_text(owner["name"])
    expect(page.locator(".step-placed .chip b", has_text="gpu").first).to_be_visible()


def gpu_of(card: dict[str, Any], uid: str) -> bool:
    return card["type"] == "gpu" and any(share["uid"] == uid for share in card["shares"])


def test_nodes_are_coloured_by_gpu_share_and_fragmentation(page: Page) -> None:
    page.goto("/")
    canvas = page.locator(".heat canvas")
    page.get_by_role("button", name="GPU share").click()
    expect(canvas).to_have_attribute("aria-label", re.compile("nodes by Requested GPU share"))
    page.get_by_role("button", name="Fragmented").click()
    expect(canvas).to_have_attribute("aria-label", re.compile("nodes by Fragmented GPU share"))
    assert colours(page) > 2
    page.get_by_role("button", name="CPU", exact=True).click()
    expect(canvas).to_have_attribute("aria-label", re.compile("nodes by Requested CPU"))


def test_the_hardware_is_that_of_the_moment(page: Page, cluster: SyntheticCluster) -> None:
    node = node_with_shared_gpus(page)
    reported = max(event.seq for event in cluster.facts if event.type == "CustomObjectObserved")
    page.goto(f"/#/nodes/{node['node']}?at={reported}")
    expect(page.locator(".hardware .core").first).to_be_visible()
    expect(page.locator(".hardware .fillings i")).to_have_count(0)
    expect(page.locator(".hardware button.owner")).to_have_count(0)
    page.locator("#live").click()
    expect(page.locator(".hardware button.owner").first).to_be_visible()


TIME_LABELS = """async ([seconds, width]) => {
  const { Chart } = await import("/assets/chart.js");
  const chart = new Chart({ format: String, steps: "counts" });
  const box = document.createElement("div");
  box.style.width = `${width}px`;
  box.append(chart.element);
  document.body.append(box);
  const begin = Date.UTC(2026, 10, 21, 23, 59, 30) / 1000;
  chart.show([begin, begin + seconds], [{ label: "pods", color: "c1", values: [0, 1] }]);
  await new Promise((done) => setTimeout(done));
  const [axis, amounts] = chart.plot.axes;
  const ctx = document.createElement("canvas").getContext("2d");
  ctx.font = '12px system-ui, sans-serif';
  const labels = axis._splits.flatMap((time, index) => (axis._values[index] ?? "").split("\\n").map((text, line) => {
    const [at, wide] = [chart.plot.valToPos(time, "x"), ctx.measureText(text).width];
    return { line, text, from: at - wide / 2, to: at + wide / 2 };
  }));
  const [counts, left] = [amounts._values, chart.plot.bbox.left / devicePixelRatio];
  chart.close();
  box.remove();
  return { labels, counts, left };
}"""
"""The time labels and the amounts of a chart over so many seconds, so wide: where each begins and ends, in pixels."""


@pytest.mark.parametrize("width", [620, 480, 300])
def test_the_times_below_a_chart_are_whole_and_never_cover_each_other(width: int, page: Page) -> None:
    page.goto("/")
    for seconds in (5, 40, 90, 600, 3600, 4 * 3600, 86_400, 4 * 86_400, 40 * 86_400, 700 * 86_400):
        drawn = page.evaluate(TIME_LABELS, [seconds, width])
        assert drawn["labels"], seconds
        lines: dict[int, list[dict[str, Any]]] = {}
        for label in drawn["labels"]:
            lines.setdefault(label["line"], []).append(label)
        left, right = -drawn["left"], width - drawn["left"]
        assert all(left <= label["from"] < label["to"] <= right for label in drawn["labels"]), seconds
        for labels in lines.values():
            for one, next_one in pairwise(labels):
                assert one["to"] + 4 <= next_one["from"], (seconds, one, next_one)
        assert len(set(drawn["counts"])) == len(drawn["counts"])


def test_lengths_of_time_are_written_as_koord_writes_them(page: Page) -> None:
    page.goto("/")
    lengths = [0, 0.0299, 0.999, 0.9996, 2, 26.448, 59.96, 185, 600, 3599.7, 7199, 7450, 90_000]
    written = page.evaluate('async (all) => { const { duration } = await import("/assets/format.js"); '
                            "return all.map(duration); }", lengths)  # fmt: skip
    assert written == [duration_text(length) for length in lengths]


def test_pods_are_filtered_and_a_life_is_explained(page: Page, cluster: SyntheticCluster) -> None:
    placed = {event.ref.id for event in cluster.facts if event.type == "PodPlaced"}
    placed -= {event.ref.id for event in cluster.facts if event.type == "PodReleased"}
    uid = next(message.ref.id for message in cluster.explanations if message.ref.id in placed)
    page.goto("/#/pods")
    expect(page.locator("table.list tbody tr")).to_have_count(100)
    page.get_by_label("any phase").select_option("pending")
    expect(page.locator(".phase.running")).to_have_count(0)
    expect(page.locator("table.list tbody tr").first).to_contain_text("nodes are available")
    page.get_by_label("any phase").select_option("")
    page.get_by_label("Name", exact=True).fill(uid)
    expect(page.locator("table.list tbody tr.link")).to_have_count(1)
    page.locator("table.list tbody tr a").first.click()
    steps = page.locator(".life .step")
    expect(steps.first).to_have_text("submitted")
    expect(page.locator(".life .step", has_text="placed")).to_have_count(1)
    decision = page.locator(".life li.step-placed")
    expect(decision.locator(".funnel")).to_be_visible()
    expect(decision.locator(".scores .chosen").first).to_contain_text("✓ node-")
    assert decision.locator(".scores .track i").count() >= 2
    expect(page.locator(".life li.step-unschedulable").first).to_contain_text("nodes are available")
    decision.get_by_role("link", name="event").click()
    expect(decision.locator("pre")).to_contain_text('"policy_version"')
    trace = page.request.get(f"/api/pods/{uid}").json()["timeline"][0]["trace_id"]
    expect(steps.first.locator("xpath=ancestor::li").locator(f"a[href='{JAEGER}/trace/{trace}']")).to_have_text(
        trace[:16]
    )


def test_explanations_that_say_the_same_are_one_step(page: Page, cluster: SyntheticCluster) -> None:
    messages: dict[str, list[str]] = {}
    for explanation in cluster.explanations:
        if isinstance(explanation.event, PodUnschedulable):
            messages.setdefault(explanation.ref.id, []).append(explanation.event.message)
    uid = max(messages, key=lambda each: len(messages[each]))
    runs = [len(list(run)) for _, run in groupby(messages[uid])]
    assert max(runs) > 2
    page.goto(f"/#/pods/{uid}")
    expect(page.locator(".life li.step-unschedulable")).to_have_count(len(runs))
    expect(page.locator(".life .again").first).to_contain_text(f"again {max(runs) - 1} times, for the same reasons")


def test_pending_pods_are_shown_with_their_reasons(page: Page) -> None:
    page.goto("/#/pending")
    expect(page.locator("h2").first).to_have_text(re.compile(r"\d+ pods are pending"))
    expect(page.locator(".gauge")).to_contain_text("Insufficient cpu")
    row = page.locator("table.list tbody tr").first
    address = row.locator("a").get_attribute("href")
    assert address is not None
    why = page.request.get(f"/api/{address.removeprefix('#/')}").json()["pod"]["why"]
    expect(row).to_contain_text(why)
    page.goto(f"/{address}")
    expect(page.locator("p.sentence")).to_have_text(why)


@pytest.mark.parametrize(
    ("pending", "examined", "attempted", "note"),
    [
        (1, 1, 0, "the scheduler has not looked at it yet"),
        (1, 1, 1, "the scheduler found no node for it"),
        (3, 3, 0, "the scheduler has looked at none yet"),
        (3, 3, 3, "the scheduler found no node for any of them"),
        (3, 3, 1, "the scheduler found no node for 1, 2 wait for their turn"),
        (9000, 5000, 5000, "of the oldest 5,000, the scheduler found no node for any of them"),
    ],
)
def test_pods_that_were_not_attempted_yet_are_told_apart(
    page: Page, pending: int, examined: int, attempted: int, note: str
) -> None:
    def counted(route: Route) -> None:
        answer = route.fetch().json()
        route.fulfill(json={**answer, "pending": pending, "examined": examined, "attempted": attempted})

    page.route("**/api/pending*", counted)
    page.goto("/#/pending")
    expect(page.locator(".bar .note").first).to_have_text(note)


def test_events_tail_filters_and_opens(page: Page, cluster: SyntheticCluster) -> None:
    page.goto("/#/events")
    expect(page.locator(".tail .row").first.locator(".seq")).to_have_text(f"{len(cluster.facts):,}")
    page.get_by_label("Kind").select_option("nodestate")
    of_nodes = re.compile("Pods|BeCpu|Agent|Interference")
    expect(page.locator(".tail .row .type").filter(has_not_text=of_nodes)).to_have_count(0)
    expect(page.locator(".tail .row").first.locator(".type")).to_have_text(of_nodes)
    page.locator(".tail .row:not(.fold)").first.click()
    expect(page.locator(".tail pre")).to_contain_text('"occurred_at"')


def test_equal_events_are_folded_copies_are_hidden_and_a_text_filters(page: Page, cluster: SyntheticCluster) -> None:
    added = sum(event.type == "NodeSpecAdded" for event in cluster.facts)
    page.goto("/#/events?at=2026-11-20T07:00:30Z")
    types = page.locator(".tail .row .type")
    fold = page.locator(".tail .row.fold", has_text="NodeSpecAdded")
    expect(fold).to_contain_text(f"{added} in a row")
    expect(types.filter(has_text="CustomObjectObserved")).to_have_count(0)
    fold.click()
    expect(page.locator(".tail .folded .row")).to_have_count(added)
    page.get_by_label("copies of objects").check()
    expect(types.filter(has_text="CustomObjectObserved").first).to_be_visible()
    page.get_by_label("copies of objects").uncheck()
    placed = next(event for event in reversed(cluster.facts) if event.type == "PodPlaced")
    page.locator("#live").click()
    page.get_by_label("Text").fill(placed.ref.id)
    expect(page.locator(".tail .row .seq", has_text=f"{placed.seq:,}")).to_be_visible()
    of_pod = sum(placed.ref.id in event.body.decode() or event.ref.id == placed.ref.id for event in cluster.facts)
    expect(page.locator(".tail .row")).to_have_count(of_pod)
    page.get_by_label("Text").fill("no fact has this")
    expect(page.locator("#view")).to_contain_text("No fact matches.")


def test_a_users_text_is_text(page: Page) -> None:
    page.goto("/#/pods")
    page.get_by_label("Name", exact=True).fill("onerror")
    row = page.locator("table.list tbody tr").first
    expect(row).to_contain_text(EVIL)
    row.locator("a").first.click()
    expect(page.locator("h1")).to_contain_text(EVIL)
    expect(page.locator("main img")).to_have_count(0)
    assert page.title().endswith(" · Koordstream")
    policy = page.request.get("/").headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy


def test_the_theme_follows_the_system_and_can_be_chosen(browser: Browser, base_url: str) -> None:
    context = browser.new_context(base_url=base_url, color_scheme="dark")
    page = context.new_page()
    background = "getComputedStyle(document.body).backgroundColor"
    page.goto("/")
    dark = page.evaluate(background)
    page.locator("#theme").click()
    light = page.evaluate(background)
    assert light != dark
    page.reload()
    assert page.evaluate(background) == light
    page.emulate_media(color_scheme="light")
    assert page.evaluate(background) == light
    context.close()
