"""A projector with a synthetic cluster and a browser that looks at its dashboard."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright
from support.projector.browser import ARGUMENTS, CHROMIUM, EVIL, JAEGER, PATIENCE_MILLIS
from support.projector.service import served_in_a_thread
from support.projector.synthetic_cluster import SyntheticCluster
from support.servers import fresh_database


@pytest.fixture(scope="module")
def cluster() -> SyntheticCluster:
    """A cluster whose facts are deterministic."""
    return SyntheticCluster(nodes=40, pods=300, evil_name=EVIL)


@pytest.fixture(scope="module")
def base_url(postgres_server_dsn: str, cluster: SyntheticCluster) -> Iterator[str]:
    """Address of a projector that has folded the cluster."""
    with fresh_database(postgres_server_dsn) as dsn, served_in_a_thread(dsn, cluster, jaeger=JAEGER) as url:
        yield url


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, base_url: str) -> Iterator[Page]:
    """A page that fails its test when the browser complains about anything."""
    complaints: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    page = browser.new_page(
        base_url=base_url, viewport={"width": 1366, "height": 860}, color_scheme="light", timezone_id="UTC"
    )
    page.on("console", note)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.set_default_timeout(PATIENCE_MILLIS)
    expect.set_options(timeout=PATIENCE_MILLIS)
    yield page
    page.close()
    assert complaints == []
