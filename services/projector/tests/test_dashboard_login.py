"""Logging in to the dashboard in headless Chromium: at a real OIDC issuer, with a token, and out again.

With KOORD_SCREENSHOTS=<folder> pictures of the login page and of the dashboard behind it are written there.
"""

import os
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest
from koordcore.embedded.ports import free_ports
from koordcore.service.access.needs import Role
from playwright.sync_api import Page, expect, sync_playwright
from support.access import AccessFolder
from support.oidc_issuer import CLIENT, OidcIssuer, running_issuer
from support.projector.browser import PATIENCE_MILLIS
from support.projector.service import served_in_a_thread
from support.projector.synthetic_cluster import SyntheticCluster
from support.servers import fresh_database

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]

pytestmark = [
    pytest.mark.deep,
    pytest.mark.postgres,
    pytest.mark.browser,
    pytest.mark.xdist_group("dashboard"),
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium at /usr/bin/chromium (apt-get install chromium)"),
]


@dataclass
class Site:
    """A dashboard behind a login."""

    page: Page  # A page of a browser without a session
    issuer: OidcIssuer  # The issuer of its logins
    token: str  # A static token with the role view


@pytest.fixture
def site(postgres_server_dsn: str, tmp_path: Path) -> Generator[Site]:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    access = AccessFolder(tmp_path)
    token = access.add("grafana", Role.VIEW)
    with running_issuer() as issuer, fresh_database(postgres_server_dsn) as dsn, sync_playwright() as playwright:
        file = access.write(
            oidc={"issuer": issuer.url, "client_id": CLIENT},
            external_url=url,
            roles={"view": {"groups": ["engineers"]}},
        )
        cluster = SyntheticCluster(nodes=10, pods=40)
        with served_in_a_thread(dsn, cluster, token=token, http_access_file=file, http_port=port):
            browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
            page = browser.new_page(base_url=url, viewport={"width": 1200, "height": 700}, color_scheme="light")
            page.set_default_timeout(PATIENCE_MILLIS)
            expect.set_options(timeout=PATIENCE_MILLIS)
            yield Site(page, issuer, token)
            browser.close()


def test_a_person_logs_in_at_the_issuer_and_out_again(site: Site) -> None:
    page = site.page
    page.goto("/")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    picture(page, "login")
    page.get_by_role("link", name="Log in with").click()
    expect(page.locator(".tile", has_text="Nodes").locator(".value")).to_have_text("10")
    expect(page.locator("#who")).to_contain_text("oidc:alice")
    picture(page, "logged-in")
    cookies = {cookie.get("name", ""): cookie for cookie in page.context.cookies()}
    assert "koord_login" not in cookies
    session = cookies["koord_session"]
    assert (session.get("httpOnly"), session.get("sameSite")) == (True, "Lax")
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    page.goto("/")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()


def test_a_person_logs_in_with_a_token_and_sees_why_another_one_is_refused(site: Site) -> None:
    page = site.page
    page.goto("/")
    page.get_by_label("Token").fill("koord_wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_have_text("The token is not valid.")
    page.get_by_label("Token").fill(site.token)
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("#who")).to_contain_text("token:grafana")


def test_an_open_page_goes_to_the_login_when_the_session_ends(site: Site) -> None:
    page = site.page
    page.goto("/auth/start")
    expect(page.locator("#who")).to_contain_text("oidc:alice")
    page.context.clear_cookies()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()


def picture(page: Page, name: str) -> None:
    """Write a picture of a page, if somebody wants to look at it."""
    folder = os.environ.get("KOORD_SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder) / f"{name}.png")
