"""Headless Chromium for tests of the dashboard."""

from pathlib import Path

import pytest
from support.until import DEADLINE_SECONDS

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
DASHBOARD_MARKS = [
    pytest.mark.postgres,
    pytest.mark.browser,
    pytest.mark.deep,
    pytest.mark.xdist_group("dashboard"),
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium at /usr/bin/chromium (apt-get install chromium)"),
]
"""Markers of tests that use the fixtures `page` and `base_url`."""
PATIENCE_MILLIS = int(DEADLINE_SECONDS * 1000)
"""Time within which the page has what a test expects, also on a loaded machine."""
EVIL = '<img src=x onerror="document.title=1">'
"""End of the name of one pod of the fixture `cluster`: a page must not run it."""
JAEGER = "http://127.0.0.1:16686"
"""Address of Jaeger in the settings of the projector. None runs: the pages only link to it."""
