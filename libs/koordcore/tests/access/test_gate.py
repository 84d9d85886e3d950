"""The gate of a running HTTP server: who is admitted, who is told what is missing, and what is recorded."""

import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from koordcore.service.access.needs import NEEDS, Role
from prometheus_client import Counter, Gauge
from support.access import AccessFolder, guarded
from support.until import until


async def test_on_loopback_without_an_access_file_everybody_may_do_everything() -> None:
    async with guarded() as run:
        assert (await run.get()).status_code == 200
        assert (await run.post(path="/v1/apply?dryRun=All")).status_code == 200
        (record,) = await run.records()
        assert (record.subject, record.route, record.dry_run, record.objects, record.status) == (
            "anonymous",
            "/v1/apply",
            True,
            ("Pod default/web",),
            200,
        )


async def test_on_every_other_address_only_public_routes_answer_without_an_access_file() -> None:
    async with guarded(http_host="0.0.0.0") as run:
        assert (await run.get()).status_code == 401
        assert (await run.post()).status_code == 401
        assert (await run.get(path="/not-declared")).status_code == 401
        for path in ("/healthz", "/livez", "/readyz", "/metrics"):
            assert (await run.get(path=path)).status_code == 200
        refused = await run.get("koord_guess")
        assert "http_access_file is not set" in refused.json()["error"]
        assert refused.headers["www-authenticate"] == "Bearer"


async def test_metrics_name_objects_to_known_senders_only(tmp_path: Path) -> None:
    access = AccessFolder(tmp_path)
    tokens = [access.add("prometheus", Role.METRICS), access.add("alice", Role.VIEW), access.add("bob", Role.OPERATE)]
    async with guarded(http_access_file=access.write()) as run:
        registry = run.shell.metrics.registry
        Gauge("pods", "Pods", ["node"], registry=registry).labels("secret-node").set(1)
        Gauge("parts", "Parts", ["named_anew"], registry=registry).labels("secret-part").set(1)
        Counter("results", "Results", ["result"], registry=registry).labels("ok").inc()
        Gauge("workqueue_depth", "Keys", ["name"], registry=registry).labels("nodeslo").set(1)
        page = (await run.get(path="/metrics")).text
        assert "secret" not in page
        assert "instance=" not in page  # the name of our own pod
        for shown in ('results_total{result="ok"} 1.0', 'workqueue_depth{name="nodeslo"} 1.0', "python_info{"):
            assert shown in page
        assert (await run.client.get("/metrics", headers={"accept": "application/openmetrics-text"})).is_success
        for token in tokens:
            page = (await run.get(token, "/metrics")).text
            assert 'pods{node="secret-node"} 1.0' in page
            assert 'parts{named_anew="secret-part"} 1.0' in page
        assert (await run.get("koord_wrong", "/metrics")).status_code == 401
        assert (await run.get(tokens[0])).status_code == 403
        assert (await run.get(tokens[0], "/metrics/resources")).status_code == 404  # this service has none
        assert (await run.get(path="/metrics/resources")).status_code == 401
    async with guarded(http_host="0.0.0.0") as run:  # as agents are, without an access file
        assert "instance=" not in (await run.get("koord_unchecked", "/metrics")).text
        assert (await run.get(path="/metrics/resources")).status_code == 401
    async with guarded() as run:
        assert "instance=" in (await run.get(path="/metrics")).text


async def test_a_role_admits_to_its_routes_and_a_refusal_names_the_missing_one(tmp_path: Path) -> None:
    access = AccessFolder(tmp_path)
    viewer, operator = access.add("grafana", Role.VIEW), access.add("alice", Role.OPERATE)
    async with guarded(http_access_file=access.write()) as run:
        assert (await run.get(viewer)).status_code == 200
        assert (await run.get(operator)).status_code == 200
        assert (await run.post(operator)).status_code == 200
        refused = await run.post(viewer)
        assert refused.status_code == 403
        assert refused.json()["error"] == "POST /v1/apply needs the role operate; token:grafana has view"
        assert [(each.subject, each.status) for each in await run.records()] == [
            ("token:alice", 200),
            ("token:grafana", 403),
        ]
        who = await run.get(viewer, "/auth/whoami")
        assert who.json() == {"subject": "token:grafana", "roles": ["view"]}


async def test_requests_without_valid_credentials_are_refused(tmp_path: Path) -> None:
    access = AccessFolder(tmp_path)
    token = access.add("alice", Role.OPERATE)
    async with guarded(http_access_file=access.write()) as run:
        for header in ("", f"Basic {token}", "Bearer", f"Bearer {token}x", "Bearer eyJhbGciOiJub25lIn0.e30."):
            headers = {"authorization": header} if header else {}
            assert (await run.client.get("/api/pods", headers=headers)).status_code == 401
        assert (await run.client.get(f"/api/pods?token={token}")).status_code == 401
        page = (await run.get(path="/metrics")).text
        assert 'koord_http_refusals_total{reason="credentials"} 6.0' in page


async def test_tokens_and_roles_change_without_a_restart(tmp_path: Path) -> None:
    access = AccessFolder(tmp_path)
    first = access.add("alice", Role.VIEW)
    async with guarded(http_access_file=access.write()) as run:
        assert (await run.get(first)).status_code == 200
        second = access.add("bob", Role.OPERATE)

        async def status(token: str) -> int:
            return (await run.get(token)).status_code

        assert await becomes(lambda: status(second), 200)
        access.tokens.write_text("tokens: []")
        assert await becomes(lambda: status(first), 401)
        third = access.add("carol", Role.VIEW)
        assert await becomes(lambda: status(third), 200)
        access.file.write_text("roles: nonsense")
        access.add("dave", Role.VIEW)
        assert await status(third) == 200  # the last valid content stays in force


async def becomes(ask: Callable[[], Awaitable[int]], wanted: int) -> bool:
    async def is_so() -> bool:
        return await ask() == wanted

    await until(is_so)
    return True


async def test_too_many_requests_of_a_subject_are_refused_and_others_are_not(tmp_path: Path) -> None:
    access = AccessFolder(tmp_path)
    busy, calm = access.add("busy", Role.OPERATE), access.add("calm", Role.VIEW)
    file = access.write(limits={"requests_per_second": 0.001, "burst": 20})
    async with guarded(http_access_file=file) as run:
        assert [(await run.post(busy)).status_code for _ in range(3)] == [200, 200, 429]  # each costs 10
        slowed = await run.get(busy)
        assert int(slowed.headers["retry-after"]) >= 1
        assert "too many requests" in slowed.json()["error"]
        assert (await run.get(calm)).status_code == 200
        assert [(await run.get("koord_guess")).status_code for _ in range(21)] == [401] * 20 + [429]
        assert (await run.get(path="/metrics")).status_code == 200


async def test_logins_of_one_address_are_limited(tmp_path: Path) -> None:
    file = AccessFolder(tmp_path).write(limits={"requests_per_second": 0.001, "burst": 20})
    async with guarded(http_access_file=file) as run:
        tried = [await run.client.post("/auth/token", data={"token": "koord_guess"}) for _ in range(3)]
        assert [answer.status_code for answer in tried] == [403, 403, 429]
        assert (await run.get(path="/auth/login")).status_code == 200


async def test_a_page_of_another_site_cannot_use_a_session(tmp_path: Path) -> None:
    access = AccessFolder(tmp_path)
    token = access.add("alice", Role.OPERATE)
    async with guarded(http_access_file=access.write()) as run:
        welcome = await run.client.post("/auth/token", data={"token": token})
        assert welcome.status_code == 303
        cookie = welcome.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie
        assert token not in cookie
        assert (await run.post()).status_code == 200  # the client keeps the cookie
        assert (await run.post(**{"sec-fetch-site": "cross-site"})).status_code == 403
        assert (await run.post(origin="https://evil.example")).status_code == 403
        assert (await run.post(origin=str(run.client.base_url).rstrip("/"))).status_code == 200
        forged = await run.client.post("/auth/token", data={"token": token}, headers={"sec-fetch-site": "cross-site"})
        assert forged.status_code == 403


CROSS_SITE = (
    {"sec-fetch-site": "cross-site", "origin": "http://evil.example"},
    {"sec-fetch-site": "same-site", "origin": "http://127.0.0.1:1"},
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:1"},
    {"origin": "http://evil.example", "content-type": "text/plain"},
    {"origin": "http://evil.example", "content-type": "application/x-www-form-urlencoded"},
    {"sec-fetch-site": "cross-site", "authorization": "Basic dTpw"},
)


@pytest.mark.parametrize("settings", [{}, {"http_access": "open", "http_host": "0.0.0.0"}], ids=["loopback", "open"])
async def test_a_page_of_another_site_changes_nothing_where_access_is_open(settings: dict[str, str]) -> None:
    async with guarded(**settings) as run:
        changes = [
            (method, re.sub(r"\{[^}]*\}", "x", need.path) + query)
            for need in NEEDS
            for method in need.methods
            if method != "GET" or need.is_audited
            for query in ("", "?dryRun=All")
        ]
        assert len(changes) > 20
        for method, path in [*changes, ("OPTIONS", "/v1/apply"), ("DELETE", "/v1/apply"), ("PATCH", "/not-declared")]:
            for headers in CROSS_SITE:
                assert (await run.client.request(method, path, headers=headers)).status_code == 403, (method, path)
        assert await run.records() == []
        own = {"origin": str(run.client.base_url).rstrip("/")}
        for headers in ({}, own, {**own, "sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}):
            assert (await run.client.post("/v1/apply", content=b"{}", headers=headers)).status_code == 200
        assert (await run.get(**{"sec-fetch-site": "cross-site"})).status_code == 200  # the browser hides the answer


async def test_a_record_is_stored_whatever_names_the_request_has() -> None:
    async with guarded() as run:
        for name in ("x" * 2_000_000, "\ud800", "\x1b[2J", ""):
            run.objects = [f"Pod default/{name}"]
            assert (await run.post()).status_code == 200
        long, surrogate, escape, empty = [record.objects[0] for record in await run.records()]
        assert len(long) < 1100
        assert "2,000,012 letters" in long
        assert (surrogate, escape, empty) == ("Pod default/?", "Pod default/\x1b[2J", "Pod default/")


async def test_a_session_ends_with_its_token_and_with_a_changed_cookie(tmp_path: Path) -> None:
    access = AccessFolder(tmp_path)
    token = access.add("alice", Role.VIEW)
    async with guarded(http_access_file=access.write()) as run:
        assert (await run.client.post("/auth/token", data={"token": "koord_wrong"})).status_code == 403
        await run.client.post("/auth/token", data={"token": token})
        assert (await run.get()).status_code == 200
        session = run.client.cookies["koord_session"]
        run.client.cookies.set("koord_session", session[:-4] + "AAAA", domain="127.0.0.1", path="/")
        assert (await run.get()).status_code == 401
        run.client.cookies.clear()
        run.client.cookies.set("koord_session", session)
        assert (await run.get()).status_code == 200
        access.tokens.write_text("tokens: []")
        access.add("alice", Role.VIEW)  # the same name with another token

        async def status() -> int:
            return (await run.get()).status_code

        assert await becomes(status, 401)


async def test_a_browser_without_a_session_is_sent_to_the_login(tmp_path: Path) -> None:
    access = AccessFolder(tmp_path)
    async with guarded(http_access_file=access.write()) as run:
        sent = await run.get(path="/", accept="text/html")
        assert (sent.status_code, sent.headers["location"]) == (303, "/auth/login")
        page = await run.get(path="/auth/login")
        assert 'name="token"' in page.text
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]


async def test_no_token_is_in_a_log_a_record_or_an_answer(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    access = AccessFolder(tmp_path)
    token, wrong = access.add("alice", Role.OPERATE), "koord_wrongwrongwrongwrongwrongwrongwrongwrong"
    async with guarded(http_access_file=access.write(), log_level="debug") as run:
        answers = [
            await run.post(token),
            await run.post(wrong),
            await run.get(wrong),
            await run.client.post("/auth/token", data={"token": wrong}),
            await run.client.post("/auth/token", data={"token": token}),
            await run.client.get("/auth/whoami"),
        ]
        told = json.dumps([repr(record) for record in await run.records()]) + "".join(answer.text for answer in answers)
    logged = "".join(capfd.readouterr())
    assert "request_audited" in logged
    for secret in (token, wrong):
        assert secret not in told
        assert secret not in logged
