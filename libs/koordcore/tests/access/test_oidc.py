"""Tokens and logins of a real OIDC issuer: real keys, real HTTP, and everything that a forged token can be."""

import base64
import hmac
import json
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc.jwk import ECKey
from koordcore.service.access import oidc
from support.access import AccessFolder, Guarded, guarded
from support.oidc_issuer import CLIENT, OidcIssuer, new_key, running_issuer
from support.until import DEADLINE_SECONDS

ROLES = {"view": {"groups": ["engineers"]}, "operate": {"groups": ["oncall"], "subjects": ["oidc:root"]}}


@pytest.fixture
def issuer() -> Generator[OidcIssuer]:
    with running_issuer() as issuer:
        yield issuer


@pytest.fixture
async def run(issuer: OidcIssuer, tmp_path: Path) -> AsyncGenerator[Guarded]:
    async with guarded(http_access_file=access_file(issuer, tmp_path)) as run:
        yield run


def access_file(issuer: OidcIssuer, folder: Path, **oidc: object) -> Path:
    settings = {"issuer": issuer.url, "client_id": CLIENT, **oidc}
    return AccessFolder(folder).write(roles=ROLES, oidc=settings, external_url="http://127.0.0.1")


async def test_groups_of_a_token_give_roles(issuer: OidcIssuer, run: Guarded) -> None:
    assert (await run.get(issuer.token())).status_code == 200
    refused = await run.post(issuer.token())
    assert refused.json()["error"] == "POST /v1/apply needs the role operate; oidc:alice has view"
    assert (await run.post(issuer.token(groups=["oncall"]))).status_code == 200
    assert (await run.post(issuer.token(sub="root", groups=[]))).status_code == 200
    nobody = await run.get(issuer.token(groups=["others"]))
    assert nobody.json()["error"] == "GET /api/pods needs the role view; oidc:alice has no role"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"exp": 1_700_000_000}, "exp"),
        ({"exp": None}, "exp"),
        ({"nbf": 4_000_000_000}, "nbf"),
        ({"iss": "https://other.example"}, "iss"),
        ({"iss": None}, "iss"),
        ({"aud": "another-client"}, "aud"),
        ({"aud": None}, "aud"),
        ({"sub": None}, "sub"),
        ({"sub": "a\nb"}, "sub"),
    ],
)
async def test_a_token_with_a_wrong_claim_is_refused(
    issuer: OidcIssuer, run: Guarded, changed: dict[str, Any], reason: str
) -> None:
    refused = await run.get(issuer.token(**changed))
    assert refused.status_code == 401
    assert f"claim {reason}" in refused.json()["error"]


async def test_clocks_may_differ_by_the_leeway(issuer: OidcIssuer, run: Guarded) -> None:
    now = int(time.time())
    assert (await run.get(issuer.token(exp=now - 30))).status_code == 200
    assert (await run.get(issuer.token(nbf=now + 30))).status_code == 200
    assert (await run.get(issuer.token(exp=now - 120))).status_code == 401


async def test_a_foreign_signature_is_refused(issuer: OidcIssuer, run: Guarded) -> None:
    foreign = new_key()
    assert (await run.get(issuer.token(key=foreign))).status_code == 401
    assert (await run.get(issuer.token(key=foreign, header={"kid": issuer.keys[0].kid}))).status_code == 401
    head, body, signature = issuer.token().split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    forged = encoded({**claims, "groups": ["oncall"]})
    assert (await run.get(f"{head}.{forged}.{signature}")).status_code == 401


async def test_the_algorithms_none_and_hmac_are_refused(issuer: OidcIssuer, run: Guarded) -> None:
    body = issuer.token().split(".")[1]
    for algorithm in ("none", "None", "NONE"):
        head = encoded({"alg": algorithm, "kid": issuer.keys[0].kid})
        assert (await run.get(f"{head}.{body}.")).status_code == 401
    # The classic confusion: the public key of the issuer as the secret of an HMAC.
    secret = issuer.keys[0].as_pem(private=False)
    head = encoded({"alg": "HS256", "kid": issuer.keys[0].kid})
    signature = hmac.digest(secret, f"{head}.{body}".encode(), "sha256")
    confused = f"{head}.{body}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
    assert (await run.get(confused)).status_code == 401


def encoded(part: dict[str, Any]) -> str:
    """Return a part of a JWT."""
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


async def test_rotated_keys_need_no_restart_and_old_ones_are_refused(
    issuer: OidcIssuer, run: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "REFRESH_SECONDS", 0.0)
    old = issuer.token()
    assert (await run.get(old)).status_code == 200
    issuer.rotate()
    assert (await run.get(issuer.token())).status_code == 200
    assert (await run.get(old)).status_code == 401
    key = ECKey.generate_key("P-256")
    key.ensure_kid()
    issuer.keys = [key]
    assert (await run.get(issuer.token())).status_code == 200


async def test_keys_are_read_once_and_strangers_cannot_cause_more(issuer: OidcIssuer, run: Guarded) -> None:
    foreign = new_key()
    for _ in range(5):
        await run.get(issuer.token())
        await run.get(issuer.token(key=foreign))
    assert issuer.key_reads == 1


async def test_known_keys_stay_in_use_while_the_issuer_is_away(tmp_path: Path) -> None:
    with running_issuer() as issuer:
        async with guarded(http_access_file=access_file(issuer, tmp_path)) as run:
            assert (await run.get(issuer.token())).status_code == 200
            token = issuer.token()
            issuer.keys.insert(0, new_key())
            unknown = issuer.token()
            issuer_is_gone = issuer
    async with guarded(http_access_file=access_file(issuer_is_gone, tmp_path)) as run:
        refused = await run.get(token)
        assert refused.status_code == 401
        assert "cannot be checked" in refused.json()["error"]
        assert (await run.get(unknown)).status_code == 401


async def test_an_unverified_address_names_nobody(issuer: OidcIssuer, tmp_path: Path) -> None:
    file = access_file(issuer, tmp_path, subject_claim="email", audience=["koordstream-api"])
    async with guarded(http_access_file=file) as run:
        assert (await run.get(issuer.token(aud=["x", "koordstream-api"]))).status_code == 200
        assert (await run.get(issuer.token(aud="koordstream-api", email_verified=False))).status_code == 401
        assert (await run.get(issuer.token())).status_code == 401


async def test_a_browser_logs_in_with_pkce_and_gets_a_session(issuer: OidcIssuer, run: Guarded) -> None:
    callback = await begin_login(issuer, run)
    welcome = await run.client.get(callback)
    assert (welcome.status_code, welcome.headers["location"]) == (303, "/")
    assert (await run.get()).status_code == 200
    assert (await run.get(path="/auth/whoami")).json() == {"subject": "oidc:alice", "roles": ["view"]}
    await run.client.post("/auth/logout")
    assert (await run.get()).status_code == 401


async def begin_login(issuer: OidcIssuer, run: Guarded) -> str:
    """Begin a login, let the issuer answer, and return the path and query of the callback."""
    sent = await run.client.get("/auth/start")
    asked = parse_qs(urlsplit(sent.headers["location"]).query)
    assert asked["code_challenge_method"] == ["S256"]
    assert asked["redirect_uri"] == ["http://127.0.0.1/auth/callback"]
    async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE_SECONDS) as browser:
        answer = await browser.get(sent.headers["location"])
    assert issuer.url in sent.headers["location"]
    return answer.headers["location"].removeprefix("http://127.0.0.1")


async def test_a_login_of_another_browser_a_replay_and_a_foreign_nonce_are_refused(
    issuer: OidcIssuer, run: Guarded
) -> None:
    callback = await begin_login(issuer, run)
    mine = dict(run.client.cookies)
    run.client.cookies.clear()
    assert (await run.client.get(callback)).status_code == 400  # no login was begun in this browser
    await begin_login(issuer, run)
    assert (await run.client.get(callback)).status_code == 400  # the state of another login
    run.client.cookies.clear()
    for name, value in mine.items():
        run.client.cookies.set(name, value)
    assert (await run.client.get(callback)).status_code == 303
    for name, value in mine.items():
        run.client.cookies.set(name, value)
    assert (await run.client.get(callback)).status_code in (400, 403)  # the code was used
    run.client.cookies.clear()
    issuer.nonce = "of another login"
    assert (await run.client.get(await begin_login(issuer, run))).status_code == 403
    assert (await run.get()).status_code == 401
