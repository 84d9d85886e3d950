"""What one key or one stranger may take of the log's servers: subscriptions, connections, answers of the issuer."""

import asyncio
import base64
import json
import urllib.request
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from koordcore.bus.client.connection import ConnectionSettings, ConnectRefused, Denied, NotConnected, client_context
from koordcore.bus.client.opening import connect
from koordcore.bus.client.wire import encode_headers, pub
from koordcore.bus.names import AUDIT_WRITERS, BusNames
from koordcore.bus.setup.installation import ACCOUNT_SEED
from koordcore.bus.setup.issuing import Check, CredentialIssuer, NodeToken, Refused, Unchecked
from koordcore.bus.setup.manifest import AUDITOR, BOOTSTRAP, MANAGER, OPERATOR, SCHEDULER, agent
from koordcore.bus.setup.streams import LARGEST_RECORD, MIB
from koordcore.embedded.nats_config import NODE_LIMITS, SERVICE_LIMITS
from koordcore.embedded.ports import LOOPBACK
from koordcore.embedded.process import http_ok
from koordcore.events.envelope import HEADER_ID
from koordcore.service.clock import SystemClock
from koordcore.values.nkey_seed import pair_of
from support.bus.attacks import log_state
from support.bus.bus_worlds import SMALL
from support.bus.guarded import JUDGE, Guarded
from support.bus.installed_server import NAMES, IssuingSite
from support.servers import server_directory
from support.until import DEADLINE_SECONDS, until

pytestmark = [pytest.mark.nats, pytest.mark.slow]


@pytest.fixture
async def server() -> AsyncIterator[Guarded]:
    with server_directory() as directory:
        users = (BOOTSTRAP, MANAGER, AUDITOR, agent("n1", name="agent-n1"))
        found = Guarded(directory, BusNames("limits"), users)
        await found.start()
        try:
            yield found
        finally:
            await found.server.kill()


async def subscriptions(monitor_url: str, user: str) -> list[int]:
    """Number of subscriptions of each connection of an account."""

    def read() -> list[int]:
        with urllib.request.urlopen(f"{monitor_url}/connz?auth=1") as answer:
            found = json.loads(answer.read())["connections"]
        return [one["subscriptions"] for one in found if one["account"] == user]

    return await asyncio.to_thread(read)


class Stranger:
    """A client that speaks the protocol itself, and goes on after an error, unlike ours."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def told(self, commands: bytes) -> list[bytes]:
        """Send commands, and return what the server says until it has read them all, or closes the connection."""
        self.writer.write(commands + b"PING\r\n")
        lines: list[bytes] = []
        async with asyncio.timeout(DEADLINE_SECONDS):
            while (line := await self.reader.readline()) not in (b"", b"PONG\r\n"):
                lines.append(line)
        return lines if line else [*lines, b"closed"]


@asynccontextmanager
async def stranger(settings: ConnectionSettings, **about: object) -> AsyncGenerator[Stranger]:
    """A connection with the key of the settings, or with the credentials `about`."""
    address = urlsplit(settings.urls[0])
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    info = json.loads((await reader.readline()).removeprefix(b"INFO "))
    if address.scheme == "tls":
        context = client_context(settings.tls)
        assert context is not None
        await writer.start_tls(context, server_hostname="localhost")
    if settings.nkey_seed_file is not None and not about:
        pair = pair_of(settings.nkey_seed_file.read_bytes().strip())
        signed = base64.urlsafe_b64encode(pair.sign(info["nonce"].encode())).rstrip(b"=").decode()
        about = {"nkey": bytes(pair.public_key).decode(), "sig": signed}
    found = Stranger(reader, writer)
    options = {"verbose": False, "headers": True, "lang": "x", "version": "1", "protocol": 0, **about}
    try:
        assert await found.told(b"CONNECT " + json.dumps(options).encode() + b"\r\n") == []
        yield found
    finally:
        writer.close()


def subscribing(inbox: str) -> bytes:
    """Commands for many subscriptions with long subjects below an inbox."""
    return b"".join(b"SUB %s.%d.%s %d\r\n" % (inbox.encode(), n, b"x" * 3000, n + 1) for n in range(1000))


async def test_a_key_holds_few_subscriptions_on_a_connection(server: Guarded) -> None:
    for user, account, most in (("agent-n1", "AGENTS", NODE_LIMITS), ("auditor", "AUDITOR", SERVICE_LIMITS)):
        async with stranger(server.settings(user)) as connection:
            errors = await connection.told(subscribing(f"_INBOX_{user}"))
            assert set(errors) == {b"-ERR 'maximum subscriptions exceeded'\r\n"}
            assert await subscriptions(server.server.monitor_url, account) == [most.subscriptions]


async def test_a_longer_line_than_a_token_needs_ends_the_connection(server: Guarded) -> None:
    async with stranger(server.settings("agent-n1")) as connection:
        told = await connection.told(b"SUB _INBOX_agent-n1.%s 1\r\n" % (b"x" * 5000))
        assert told == [b"-ERR 'maximum control line exceeded'\r\n", b"closed"]


async def test_the_server_forgets_the_ids_of_reports(server: Guarded) -> None:
    """It keeps ids in memory. With a window of two minutes, reports with ids of 64 KB filled it with 2 GiB."""
    report = f"{server.names.prefix('obs')}node.n1"
    header = encode_headers({HEADER_ID: "x" * 64_000})
    async with server.connected("agent-n1") as agent:

        async def is_stored() -> bool:
            return "duplicate" not in json.loads((await agent.request(report, b"{}", header=header)).data)

        assert await is_stored()
        await until(is_stored, seconds=30)  # a quarter of the window that the server has by default


async def test_a_writer_of_audit_records_pushes_out_its_own_only() -> None:
    names = BusNames("records")
    written = {writer: f"{names.prefix('audit')}request.{writer}" for writer in AUDIT_WRITERS}
    with server_directory() as directory:
        server = Guarded(directory, names, (BOOTSTRAP, MANAGER, SCHEDULER, OPERATOR))
        await server.start(replace(SMALL, audit=MIB))
        try:
            async with server.connected("manager") as manager, server.connected("operator") as attacker:
                for _ in range(5):
                    await manager.request(written["manager"], b"{}")
                for subject in (written["manager"], f"{names.prefix('audit')}request.x"):
                    with pytest.raises(Denied):
                        await attacker.request(subject, b"{}", timeout=DEADLINE_SECONDS)
                refused = await attacker.request(written["koord"], b"x" * LARGEST_RECORD + b"x")
                assert b"message size exceeds maximum" in refused.data
                for _ in range(2 * MIB // LARGEST_RECORD):
                    attacker.write(pub(written["koord"], "", b"x" * LARGEST_RECORD))
                await attacker.request(written["koord"], b"{}")
            async with server.connected(JUDGE) as judge:
                kept = (await log_state(judge)).subjects
        finally:
            await server.kill()
    assert kept[names.audit, written["manager"]] == 5
    assert 0 < kept[names.audit, written["koord"]] * LARGEST_RECORD < MIB / len(AUDIT_WRITERS)


@pytest.mark.deep
async def test_the_connections_of_one_user_leave_room_for_others(server: Guarded) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(SERVICE_LIMITS.connections):
            await stack.enter_async_context(server.connected("auditor"))
        with pytest.raises((ConnectRefused, NotConnected)):
            await connect(replace(server.settings("auditor"), connect_seconds=3.0))
        for user in ("manager", "agent-n1"):
            async with server.connected(user) as connection:
                assert connection.is_connected


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[IssuingSite]:
    """A server that asks an issuer."""
    found = IssuingSite(tmp_path / "keys")
    found.create("--issuer")
    found.start()
    await until(lambda: http_ok(f"http://{LOOPBACK}:{found.monitor}/healthz?js-enabled-only=true"))
    try:
        yield found
    finally:
        found.kill()


@asynccontextmanager
async def issuer(site: IssuingSite, check: Check) -> AsyncGenerator[None]:
    """An issuer of this process with a check of its own."""
    async with site.connected("issuer") as connection:
        seed = (site.folder / "issuer" / ACCOUNT_SEED).read_bytes()
        running = asyncio.create_task(CredentialIssuer(connection, NAMES, seed, check=check, clock=SystemClock()).run())
        try:
            yield
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


def made_up(number: int) -> str:
    """A text that may be a token."""
    return f"{'a' * 20}.{number:020}.{'c' * 40}"


async def test_checks_that_take_long_keep_out_no_other_agent(site: IssuingSite) -> None:
    waiting: set[str] = set()

    async def check(token: str) -> NodeToken:
        if token != made_up(0):
            waiting.add(token)
            await asyncio.Event().wait()  # as long as the API server does not answer
        return NodeToken("n1", int(SystemClock().unix()) + 600)

    async with issuer(site, check):
        strangers = [asyncio.create_task(site.refuses(f"s{number}", made_up(number))) for number in range(1, 9)]
        try:
            await until(lambda: len(waiting) == len(strangers))
            await until(lambda: site.admits("n1", made_up(0)))
        finally:
            for stranger in strangers:
                stranger.cancel()
            await asyncio.wait(strangers)


async def test_a_refused_token_is_checked_once_and_what_is_no_token_never(site: IssuingSite) -> None:
    checked: Counter[str] = Counter()

    async def check(token: str) -> NodeToken:
        checked[token] += 1
        if token == made_up(2):
            if checked[token] == 1:
                raise Unchecked("the API server does not answer")
            return NodeToken("n2", int(SystemClock().unix()) + 600)
        raise Refused("nobody knows it")

    async with issuer(site, check):
        await until(lambda: site.refuses("n1", made_up(1)))
        seen = checked[made_up(1)]
        assert await site.refuses("n1", made_up(1))
        assert checked[made_up(1)] == seen == 1
        for text in ("x", "x" * 300, "a.b.c"):
            await until(lambda text=text: site.refuses("n1", text))
        assert set(checked) == {made_up(1)}
        # What could not be checked is checked again.
        await until(lambda: site.admits("n2", made_up(2)))


async def test_an_agent_with_a_token_holds_few_subscriptions_too(site: IssuingSite) -> None:
    async def check(_: str) -> NodeToken:
        return NodeToken("n1", int(SystemClock().unix()) + 600)

    async with issuer(site, check), stranger(site.settings("manager"), auth_token=made_up(1)) as connection:
        await connection.told(subscribing("_INBOX_agent-n1"))
        assert await subscriptions(f"http://{LOOPBACK}:{site.monitor}", "AGENTS") == [NODE_LIMITS.subscriptions]
