"""Agents with tokens instead of keys: a real server asks `koord keys issue` who they are, and what they may."""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from koordcore.bus.client.connection import ConnectRefused, Denied, NotConnected, TlsClientFiles
from koordcore.bus.client.opening import connect
from koordcore.bus.factory import bus_on
from koordcore.bus.read.stream_reader import ApiError
from koordcore.bus.setup.issuing import NodeToken, NodeTokens, Refused, claims_of
from koordcore.bus.setup.manifest import agent
from koordcore.bus.setup.principals import CALLOUT_SUBJECT
from koordcore.bus.setup.streams import streams
from koordcore.embedded.ports import LOOPBACK
from koordcore.embedded.process import http_ok
from koordcore.events.criproxy import ProxyFactsDropped
from koordcore.events.nodestate import PodsStarted
from koordcore.ports.eventlog import Appended, Misconfigured
from support.bus.attacks import ATTACKS, matches, reached_by, send_all
from support.bus.bus_worlds import sealed
from support.bus.guarded import relaying
from support.bus.installed_server import NAMES, IssuingSite, koord
from support.until import until

pytestmark = [pytest.mark.nats, pytest.mark.slow]


def now() -> datetime:
    return datetime.now(UTC)


def test_a_token_is_valid_for_a_day_at_most(tmp_path: Path) -> None:
    tokens, moment = NodeTokens(tmp_path, "tokens"), now()
    token = tokens.issue("n1", moment, timedelta(days=30))
    claims = claims_of(token)
    assert claims["exp"] - claims["iat"] == 24 * 3600
    assert tokens.check(token, moment) == NodeToken("n1", claims["exp"])
    with pytest.raises(Refused):
        tokens.check(token, moment + timedelta(hours=24, minutes=2))


def test_a_token_of_another_cluster_another_key_or_no_key_is_refused(tmp_path: Path) -> None:
    tokens, moment = NodeTokens(tmp_path / "a", "tokens"), now()
    others = (NodeTokens(tmp_path / "a", "other"), NodeTokens(tmp_path / "b", "tokens"))
    for token in (*(other.issue("n1", moment) for other in others), "", "x.y", "eyJhbGciOiJub25lIn0.e30."):
        with pytest.raises(Refused):
            tokens.check(token, moment)


def test_a_revoked_token_is_refused_and_a_newer_one_is_not(tmp_path: Path) -> None:
    tokens, moment = NodeTokens(tmp_path, "tokens"), now()
    leaked, other = tokens.issue("n1", moment), tokens.issue("n2", moment)
    tokens.revoke("n1", moment)
    with pytest.raises(Refused, match="revoked"):
        tokens.check(leaked, moment)
    assert tokens.check(other, moment).node == "n2"
    later = moment + timedelta(seconds=1)
    assert tokens.check(tokens.issue("n1", later), later).node == "n1"


@pytest.fixture
async def place(tmp_path: Path) -> AsyncGenerator[IssuingSite]:
    """A server, and `koord keys issue` as a process."""
    found = IssuingSite(tmp_path / "keys")
    found.create("--issuer")
    found.start()
    await until(lambda: http_ok(f"http://{LOOPBACK}:{found.monitor}/healthz?js-enabled-only=true"))
    assert "created" in koord("bus", "bootstrap", env=found.bootstrap_environment())
    words = [sys.executable, "-m", "koordctl", "keys", "issue", str(found.folder / "issuer"), "--nats", found.url]
    words += ["--cluster", NAMES.cluster, "--proxy-facts"]
    issuer = await asyncio.create_subprocess_exec(*words)
    try:
        yield found
    finally:
        issuer.terminate()
        await issuer.wait()
        found.kill()


async def test_an_agent_with_a_token_writes_for_its_node_only(place: IssuingSite) -> None:
    token = koord("keys", "token", str(place.folder), "n1").strip()
    await until(lambda: place.admits("n1", token))
    async with (
        place.connected("manager") as manager,
        relaying(manager, NAMES),
        place.as_agent("n1", token) as connection,
    ):
        bus = bus_on(connection, NAMES)
        mine = sealed("nodestate", "n1", PodsStarted(pods=["a"]), 0, "one")
        assert isinstance(await bus.events.append([mine]), Appended)
        of_proxy = sealed("criproxy", "n1", ProxyFactsDropped(facts=1), 0, "one")
        assert isinstance(await bus.events.append([of_proxy]), Appended)
        for foreign in (
            sealed("nodestate", "n2", PodsStarted(pods=["a"]), 0, "two"),
            sealed("criproxy", "n2", ProxyFactsDropped(facts=1), 0, "two"),
        ):
            with pytest.raises((Denied, Misconfigured), match="permission denied"):
                await bus.events.append([foreign])
        with pytest.raises((Denied, Misconfigured), match="permission denied"):
            await bus.desired.get("n2")


@pytest.mark.deep
async def test_a_token_of_an_agent_writes_and_deletes_nothing_else(
    place: IssuingSite, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "koordcore.bus")  # each of the thousands of refusals would be logged
    await until(lambda: place.admits("n1", place.tokens.issue("n1", now())))
    user = agent("n1", name="agent-n1", for_proxy=True)
    own = reached_by(user, NAMES)

    async def messages() -> dict[tuple[str, str], int]:
        async with place.connected("bootstrap") as connection:
            infos = [
                json.loads(
                    (await connection.request(f"$JS.API.STREAM.INFO.{spec.name}", b'{"subjects_filter":">"}')).data
                )
                for spec in streams(NAMES, replicas=1)
            ]
        found = ((info["config"]["name"], info["state"].get("subjects", {})) for info in infos)
        return {(stream, subject): count for stream, subjects in found for subject, count in subjects.items()}

    before = await messages()
    async with place.as_agent("n1", place.tokens.issue("n1", now())) as connection:
        for attack in ATTACKS:
            assert await send_all(connection, attack(user, NAMES)) > 0
    after = await messages()
    changed = {key for key in {*before, *after} if before.get(key) != after.get(key)}
    assert [key for key in sorted(changed) if not any(matches(right, key[1]) for right in own)] == []


@pytest.mark.deep
async def test_the_certificate_that_agents_share_opens_no_log_and_names_no_other_server(place: IssuingSite) -> None:
    await until(lambda: place.admits("n1", place.tokens.issue("n1", now())))
    place.create("--issuer", "--every-node")  # as on Kubernetes
    shared = place.folder / "agent"
    leaked = TlsClientFiles(ca=shared / "ca.crt", certificate=shared / "tls.crt", key=shared / "tls.key")
    for user in ("agent-n1", "agent"):
        with pytest.raises((ConnectRefused, NotConnected)):
            await connect(replace(place.settings(user), nkey_seed_file=None, tls=leaked))

    found = {
        file.parent.name: x509.load_pem_x509_certificate(file.read_bytes()) for file in place.folder.glob("*/tls.crt")
    }
    usage = found["agent"].extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    names = {
        owner: set(
            one.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)
        )
        - {"localhost"}
        for owner, one in found.items()
    }
    assert names.pop("agent") == {"agent", "koord-agent"}
    assert names.keys() >= {"nats", "manager", "scheduler", "descheduler", "projector"}
    assert not set().union(*names.values()) & {"agent", "koord-agent"}


@pytest.mark.deep
async def test_the_server_refuses_what_the_issuer_refuses_and_keeps_users_with_keys(place: IssuingSite) -> None:
    token = place.tokens.issue("n1", now())
    await until(lambda: place.admits("n1", token))
    foreign = NodeTokens(place.folder / "foreign", NAMES.cluster).issue("n1", now())
    expired = place.tokens.issue("n1", now() - timedelta(days=2))
    for refused in (foreign, expired, "x", f"{token}x"):
        assert await place.refuses("n1", refused)
    assert "refused" in koord("keys", "revoke", str(place.folder), "n1")
    assert await place.refuses("n1", token)
    async with place.connected("manager") as connection:  # its key is in the configuration
        assert connection.is_connected


@pytest.mark.deep
async def test_a_connection_ends_with_its_token_and_begins_again_with_a_newer_one(place: IssuingSite) -> None:
    await until(lambda: place.admits("n1", place.tokens.issue("n1", now())))  # the issuer runs
    short = timedelta(seconds=15)
    async with (
        AsyncExitStack() as stack,
        place.as_agent("n1", lambda: place.tokens.issue("n1", now(), short)) as connection,
    ):
        await stack.enter_async_context(relaying(await stack.enter_async_context(place.connected("manager")), NAMES))
        newer = place.tokens.issue("n1", now())
        (place.folder / "n1.token").write_text(newer)
        await until(lambda: connection.epoch > 0)
        event = sealed("nodestate", "n1", PodsStarted(pods=["a"]), 0, "one")
        assert isinstance(await bus_on(connection, NAMES).events.append([event]), Appended)


@pytest.mark.deep
async def test_a_rotated_key_of_a_service_needs_a_reload_only_and_the_old_one_is_refused(place: IssuingSite) -> None:
    await until(lambda: place.admits("n1", place.tokens.issue("n1", now())))
    for number in range(2):
        old = place.folder / f"old-{number}.seed"
        old.write_bytes(place.seed("scheduler").read_bytes())
        assert "Reload the servers" in koord("keys", "rotate", str(place.folder), "scheduler")
        place.create()
        place.reload()
        await until(lambda old=old: place.is_refused("scheduler", old))
        async with place.connected("scheduler"), place.connected("manager"):
            pass
    assert place.server is not None
    assert place.server.poll() is None
    koord("keys", "rotate", str(place.folder), "scheduler")
    assert "Restart the servers" in koord("keys", "rotate", str(place.folder), "scheduler")
    assert "Restart the servers" in koord("keys", "create", str(place.folder), "--cluster", "prod", "--node", "n2")


@pytest.mark.deep
async def test_nobody_but_the_issuer_hears_the_questions_and_it_reads_no_fact(place: IssuingSite) -> None:
    async with place.connected("issuer") as connection:
        with pytest.raises((Denied, NotConnected, Misconfigured, ApiError)):
            await bus_on(connection, NAMES).events.head()
    async with place.connected("manager") as connection:
        heard: list[bytes] = []
        await connection.client.subscribe_sink(CALLOUT_SUBJECT, lambda _a, _b, _c, payload: heard.append(payload))
        await until(lambda: place.admits("n1", place.tokens.issue("n1", now())))
        assert heard == []
