"""Pictures of a running dashboard for the README: `python tests/pictures.py http://127.0.0.1:PORT docs/images`.

Wants Chromium at /usr/bin/chromium and the demo running, with pods placed.
"""

import json
import sys
import urllib.request
from pathlib import Path

from playwright.sync_api import sync_playwright

ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]


def _page_of_a_told_pod(url: str) -> str:
    """The page of a running pod that was refused at least once before, else of any running pod."""
    with urllib.request.urlopen(f"{url}/api/pods?phase=running&limit=500") as answer:
        pods = json.load(answer)["pods"]
    return f"/#/pods/{max(pods, key=lambda pod: pod['attempts'])['uid']}"


def main() -> None:
    """Writes the pictures into the folder named on the command line."""
    url, folder = sys.argv[1].rstrip("/"), Path(sys.argv[2])
    pictures = [("dashboard-cluster-dark", "/#/cluster", "dark"), ("dashboard-pod", _page_of_a_told_pod(url), "light")]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)
        for name, path, scheme in pictures:
            theme = "dark" if scheme == "dark" else "light"
            page = browser.new_page(viewport={"width": 1366, "height": 900}, color_scheme=theme)
            page.goto(url + path)
            page.wait_for_timeout(3000)
            page.screenshot(path=folder / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
