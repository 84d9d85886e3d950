"""The token that `koord` sends: from the environment, from a file, and from a login at a real OIDC issuer."""

import asyncio
import stat
from pathlib import Path

import pytest
from koordctl.access import credentials
from koordctl.access.clients import Client, ask
from koordctl.app import app
from support.access import AccessFolder, guarded
from support.oidc_issuer import CLIENT, running_issuer
from support.until import DEADLINE_SECONDS
from typer.testing import CliRunner


@pytest.fixture(autouse=True)
def no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KOORD_TOKEN", "KOORD_TOKEN_FILE", "KOORD_CA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_the_environment_has_precedence_over_the_file_and_the_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert credentials.authorization() == {}
    credentials.keep_login("from-login", 4_000_000_000, "https://issuer")
    assert credentials.token() == "from-login"
    file = tmp_path / "token"
    file.write_text("from-file\n")
    monkeypatch.setenv("KOORD_TOKEN_FILE", str(file))
    assert credentials.token() == "from-file"
    monkeypatch.setenv("KOORD_TOKEN", "from-environment")
    assert credentials.authorization() == {"authorization": "Bearer from-environment"}


def test_a_login_that_has_expired_is_not_sent() -> None:
    credentials.keep_login("old", 1_000_000_000, "https://issuer")
    assert credentials.token() == ""
    assert stat.S_IMODE(credentials.login_file().stat().st_mode) == 0o600


async def test_a_login_by_device_code_is_sent_with_later_requests(tmp_path: Path) -> None:
    with running_issuer() as issuer:
        file = AccessFolder(tmp_path).write(
            oidc={"issuer": issuer.url, "client_id": CLIENT},
            external_url="http://127.0.0.1",
            roles={"view": {"groups": ["engineers"]}},
        )
        async with guarded(http_access_file=file) as run:
            url = run.shell.http.url
            assert (await asyncio.to_thread(ask, f"{url}/api/pods", timeout=DEADLINE_SECONDS)).status_code == 401
            done = await asyncio.to_thread(CliRunner().invoke, app, ["login", "--url", url])
            assert done.exit_code == 0, done.output
            assert "ABCD-EFGH" in done.output
            assert "logged in as alice" in done.output
            assert (await asyncio.to_thread(Client("projector", url=url).request, "GET", "/api/pods")).text == "pods"
            refused = await asyncio.to_thread(Client("manager", url=url).post, "/v1/apply")
            assert refused.json()["error"] == "POST /v1/apply needs the role operate; oidc:alice has view"
            CliRunner().invoke(app, ["logout"])
            assert (await asyncio.to_thread(ask, f"{url}/api/pods", timeout=DEADLINE_SECONDS)).status_code == 401


def test_tokens_are_created_listed_and_revoked(tmp_path: Path) -> None:
    file = str(tmp_path / "tokens.yaml")
    made = CliRunner().invoke(app, ["tokens", "create", file, "grafana", "--role", "view"])
    assert made.exit_code == 0
    secret = made.stdout.strip().splitlines()[-1]
    assert secret.startswith("koord_")
    assert secret not in Path(file).read_text()
    assert "grafana" in CliRunner().invoke(app, ["tokens", "list", file]).stdout
    assert CliRunner().invoke(app, ["tokens", "revoke", file, "grafana"]).exit_code == 0
    assert CliRunner().invoke(app, ["tokens", "revoke", file, "grafana"]).exit_code == 1
    assert CliRunner().invoke(app, ["tokens", "create", file, "x", "--role", "root"]).exit_code == 2
