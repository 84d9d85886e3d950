"""Pictures of a running dashboard for the README: `python tests/support/pictures.py http://127.0.0.1:PORT docs/images`.

Wants Chromium at /usr/bin/chromium and the demo running, with pods placed; `dashboard-hardware` wants nodes with Device
objects.
"""

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]


def _page_of_a_told_pod(url: str) -> str:
    """The page of a running pod that was refused at least once before, else of any running pod."""
    with urllib.request.urlopen(f"{url}/api/pods?phase=running&limit=500") as answer:
        pods = json.load(answer)["pods"]
    return f"/#/pods/{max(pods, key=lambda pod: pod['attempts'])['uid']}"


def _page_of_a_held_node(url: str) -> str:
    """The page of the node whose best-effort pods use most while a quota holds them."""
    with urllib.request.urlopen(f"{url}/api/nodes") as answer:
        nodes = json.load(answer)["nodes"]
    held = [node for node in nodes if node["be_quota_us"] > 0 and node["host"] == "simulated"]
    return f"/#/nodes/{max(held, key=lambda node: node['be_cpu_used'] or 0)['name']}"


def _page_of_a_shared_node(url: str) -> str:
    """The page of the node whose GPUs most pods share."""
    with urllib.request.urlopen(f"{url}/api/devices?limit=500") as answer:
        nodes = json.load(answer)["nodes"]

    def shared(node: dict[str, Any]) -> tuple[int, int]:
        return sum(len(card["shares"]) > 1 for card in node["cards"]), len(node["owners"])

    return f"/#/nodes/{max(nodes, key=shared)['node']}"


def main() -> None:
    """Writes the pictures into the folder named on the command line, or only those that are named after it."""
    url, folder, wanted = sys.argv[1].rstrip("/"), Path(sys.argv[2]), sys.argv[3:]
    pages = {
        "dashboard-cluster-dark": (lambda: "/#/cluster", "dark"),
        "dashboard-pod": (lambda: _page_of_a_told_pod(url), "light"),
        "dashboard-node": (lambda: _page_of_a_held_node(url), "light"),
        "dashboard-hardware": (lambda: _page_of_a_shared_node(url), "light"),
    }
    pictures = [(name, page(), scheme) for name, (page, scheme) in pages.items() if name in wanted or not wanted]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)
        for name, path, scheme in pictures:
            theme = "dark" if scheme == "dark" else "light"
            page = browser.new_page(viewport={"width": 1366, "height": 950}, color_scheme=theme)
            page.goto(url + path)
            page.wait_for_timeout(3000)
            page.screenshot(path=folder / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
