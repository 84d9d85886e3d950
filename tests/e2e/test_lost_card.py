"""A card that falls off the bus: from the driver of this machine over agent, Device and scheduler to the dashboard.

The library of the driver is a program of the test; everything else is the stack as `koord up` runs it.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect, sync_playwright
from support.koord_command import KoordCommand as Koord
from support.projector.browser import ARGUMENTS, CHROMIUM, PATIENCE_MILLIS
from support.servers import server_directory
from support.until import until_blocking

pytestmark = [
    pytest.mark.deep,
    pytest.mark.slow,
    pytest.mark.nats,
    pytest.mark.postgres,
    pytest.mark.browser,
    pytest.mark.xdist_group("embedded-stack"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler for the library"),
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium at /usr/bin/chromium (apt-get install chromium)"),
]
LIBRARY = Path(__file__).parents[2] / "services/agent/tests/machine/fake_nvml.c"
CARDS = {"GPU-a": "0 00000000:3B:00.0", "GPU-b": "1 00000000:AF:00.0"}
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{koordinator.sh/qosClass: LS}}}}
spec:
  priority: 9500
  tolerations: [{{key: koordstream.io/measured-only, operator: Exists}}]
  containers:
  - name: main
    image: train
    resources:
      requests: {{cpu: 100m, memory: 64Mi, koordinator.sh/gpu: "100"}}
      limits: {{cpu: 100m, memory: 64Mi, koordinator.sh/gpu: "100"}}
"""


class Driver:
    """The NVIDIA library of this machine, with two cards that a test can lose."""

    def __init__(self, folder: Path) -> None:
        self.nvml = folder / "libnvidia-ml.so.1"
        self.cards = folder / "cards"
        subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", str(self.nvml), str(LIBRARY)], check=True)
        self.answer()

    def answer(self, **states: str) -> None:
        """The state of each card from now on; "ok" if it is not named."""
        lines = [
            f"{uuid} {place} 85899345920 {states.get(uuid[-1], 'ok')} NVIDIA A100\n" for uuid, place in CARDS.items()
        ]
        fresh = self.cards.with_suffix(".new")
        fresh.write_text("".join(lines))
        fresh.replace(self.cards)


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path)


@pytest.fixture
def koord(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Koord]:
    """A stack with an agent for this machine, which finds the driver, and one simulated node without cards."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver.nvml.parent))
    monkeypatch.setenv("FAKE_NVML", str(driver.cards))
    monkeypatch.setenv("KOORD_AGENT_FEATURE_GATES", "Accelerators=true")
    # The scheduler avoids a busy machine, which that of the tests may be.
    monkeypatch.setenv("KOORD_AGENT_ENABLE_NODE_METRIC_REPORT", "false")
    with server_directory() as folder:
        command = Koord(folder / "var")
        try:
            command.run("up", "--simulated-nodes", "1")
            yield command
        finally:
            command.run("down")


def health_of(koord: Koord) -> dict[str, bool]:
    """UUID -> health in the Device objects."""
    devices: list[dict[str, Any]] = koord.ask("get", "devices")["items"]
    return {each["id"]: each["health"] for device in devices for each in device["spec"]["devices"]}


def codes_of(koord: Koord) -> list[str]:
    """Why each card is unhealthy in the last fact of the agent; "" for a healthy one."""
    lines = koord.run("events", "--kind", "nodestate", "-o", "json").splitlines()
    facts = [fact for line in lines if (fact := json.loads(line))["type"] == "DeviceInventoryChanged"]
    return [each.get("code", "") for each in facts[-1]["body"]["devices"]] if facts else []


def placed_on(koord: Koord, pod: str) -> str:
    """Node of a pod; "" while it waits."""
    return str(koord.ask("get", "pod", pod)["spec"].get("nodeName", ""))


def test_lost_card_is_a_fact_takes_no_pod_and_is_shown_until_it_is_back(koord: Koord, driver: Driver) -> None:
    until_blocking(lambda: health_of(koord) == {"GPU-a": True, "GPU-b": True}, "two healthy cards")
    (node,) = {device["metadata"]["name"] for device in koord.ask("get", "devices")["items"]}
    projector = koord.stack().find("projector")
    assert projector is not None
    web = projector.urls["http"]

    driver.answer(b="lost")
    until_blocking(lambda: codes_of(koord) == ["", "GpuIsLost"], "the fact says why")
    until_blocking(lambda: health_of(koord) == {"GPU-a": True, "GPU-b": False}, "the Device names the lost card")
    for name in ("first", "second"):
        koord.run("apply", "-f", "-", stdin=POD.format(name=name))
    until_blocking(lambda: placed_on(koord, "first") == node, "the healthy card is taken")
    until_blocking(lambda: "0 of 2 nodes fit" in koord.run("explain", "pod", "second"), "the second pod waits")
    assert placed_on(koord, "second") == ""
    assert [line.split()[6] for line in koord.run("get", "devices").splitlines()[1:]] == ["healthy", "unhealthy"]

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        page = browser.new_page()
        page.goto(f"{web}/#/nodes/{node}")
        expect(page.locator(".hardware .card.unhealthy")).to_have_count(1, timeout=PATIENCE_MILLIS)
        driver.answer()
        until_blocking(lambda: health_of(koord) == {"GPU-a": True, "GPU-b": True}, "the card is back")
        until_blocking(lambda: placed_on(koord, "second") == node, "the pod gets it")
        page.reload()
        expect(page.locator(".hardware .card").first).to_be_visible(timeout=PATIENCE_MILLIS)
        expect(page.locator(".hardware .card.unhealthy")).to_have_count(0, timeout=PATIENCE_MILLIS)
        browser.close()
