"""A running installation of an earlier release gets accounts: agents of that release go on all the time.

The rights of its users are in `golden/users-2026-11.json`: name of the user -> subjects.
"""

import json
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from koordcore.bus.client.connection import BusConnection, ConnectRefused, NoAnswer, NotConnected
from koordcore.bus.client.wire import decode_headers, encode_headers, pub
from koordcore.bus.factory import bus_on
from koordcore.embedded.ports import LOOPBACK
from koordcore.embedded.process import http_ok
from koordcore.events.envelope import HEADER_EXPECTED_LAST
from support.bus.guarded import relaying
from support.bus.installed_server import NAMES, Site, koord
from support.pages import ReaderElsewhere, sections_for
from support.until import until

pytestmark = [pytest.mark.nats, pytest.mark.slow]

GOLDEN = Path(__file__).parent / "golden" / "users-2026-11.json"
OWN = f"{NAMES.prefix('ev')}nodestate.n1"
PUSH = f"{NAMES.prefix('push')}node.n1"
NODE = f"{NAMES.prefix('ev')}node.n1"


def use_the_rights_of_the_release_before(site: Site) -> None:
    """Let the configuration have one account with the users and rights of the golden file."""
    file = site.folder / "nats" / "nats-0.conf"
    document: dict[str, Any] = json.loads(file.read_text())
    key_of = {
        name: next(
            user["nkey"]
            for account in document["accounts"].values()
            for user in account["users"]
            if f"_INBOX_{name}.>" in user["permissions"]["subscribe"]["allow"]
        )
        for name in ("agent-n1", "manager", "scheduler", "bootstrap", "projector")
    }
    users = [
        {
            "nkey": key_of[name],
            "permissions": {
                "publish": {"allow": rights["publish"]},
                "subscribe": {"allow": rights["subscribe"]},
                **({"allow_responses": True} if rights["allow_responses"] else {}),
            },
        }
        for name, rights in json.loads(GOLDEN.read_text()).items()
        if name in key_of
    ]
    document["accounts"] = {"KOORD": {"jetstream": "enabled", "users": users}, "SYS": {"users": []}}
    file.write_text(json.dumps(document))


class OldAgent:
    """The calls of an agent of the release before, under the names that it knows."""

    def __init__(self, agent: BusConnection, site: Site) -> None:
        self._agent, self._site = agent, site
        self._pushes: list[bytes] = []
        self.stored: list[int] = []

    async def listen(self) -> None:
        await self._agent.client.subscribe_sink(PUSH, lambda _s, _r, _h, body: self._pushes.append(body))
        await self._agent.client.flush()

    async def works(self, mark: bytes) -> bool:
        """Whether it appends a fact, reads it, reports, and gets a push."""
        read = f"$JS.API.DIRECT.GET.{NAMES.ev}.{OWN}"
        try:
            before = decode_headers((await self._agent.request(read)).header).get("Nats-Sequence", "0")
            expects = encode_headers({HEADER_EXPECTED_LAST: before, "Koord-Type": "PodsStarted"})
            answer = json.loads((await self._agent.request(OWN, mark, header=expects)).data)
            self.stored.append(answer["seq"])
            fact = await self._agent.request(read)
            self._agent.write(pub(f"{NAMES.prefix('obs')}node.n1", "", mark))
            async with self._site.connected("scheduler") as scheduler:
                await scheduler.request(NODE, mark)
        except (NoAnswer, NotConnected, ConnectRefused, KeyError):
            return False
        await until(lambda: mark in self._pushes)
        return fact.data == mark


@asynccontextmanager
async def old_agent(site: Site) -> AsyncGenerator[OldAgent]:
    async with site.connected("agent-n1") as agent:
        found = OldAgent(agent, site)
        await found.listen()
        yield found


@contextmanager
def running(folder: Path) -> Generator[Site]:
    site = Site(folder)
    site.create("--node", "n1")
    use_the_rights_of_the_release_before(site)
    site.start()
    try:
        yield site
    finally:
        site.kill()


async def has_moved(site: Site) -> bool:
    """Whether the server does not send an answer to an agent to a subject of another user any more."""
    try:
        return await _is_confined(site)
    except (ConnectRefused, NotConnected, NoAnswer):  # the server refuses clients while it reloads
        return False


async def _is_confined(site: Site) -> bool:
    seen: list[bytes] = []
    async with site.connected("agent-n1") as attacker, site.connected("scheduler") as victim:
        await victim.client.subscribe_sink("_INBOX_scheduler.forged", lambda _s, _r, _h, body: seen.append(body))
        await victim.client.flush()
        attacker.write(pub(f"$JS.API.DIRECT.GET.{NAMES.ev}.{OWN}", "_INBOX_scheduler.forged", b""))
        await attacker.request(f"$JS.API.DIRECT.GET.{NAMES.ev}.{OWN}")
        await victim.client.flush()
    return not seen


async def facts_read_by_a_service(site: Site) -> int:
    """Return the number of facts that a projector of this release finds in the log."""
    async with site.connected("projector") as connection:
        events = bus_on(connection, NAMES).events
        head = await events.head()
        return sum([len(batch) async for batch in events.history(0, head.last_seq)])


def knows_accounts(site: Site) -> bool:
    return http_ok(f"http://{LOOPBACK}:{site.monitor}/accountz?acc=AGENTS")


@pytest.mark.deep
async def test_agents_of_the_release_before_go_on_while_users_move(tmp_path: Path) -> None:
    with running(tmp_path / "keys") as site:
        await until(lambda: http_ok(f"http://{LOOPBACK}:{site.monitor}/healthz?js-enabled-only=true"))
        assert "created" in koord("bus", "bootstrap", env=site.bootstrap_environment())
        async with old_agent(site) as agent:
            assert await agent.works(b"before")
            assert not await has_moved(site)

            (page,) = sections_for(__file__, tmp_path / "pages")
            places = {"create keys": f"create keys --cluster {NAMES.cluster}", "nats-server --signal reload": "true"}
            ReaderElsewhere(tmp_path, {}, places).follow(page)
            site.place_files()
            site.reload()
            await until(lambda: knows_accounts(site))
            await until(lambda: agent.works(b"between"))
            read = await facts_read_by_a_service(site)
            assert not await has_moved(site)

            async with site.connected("manager") as manager, relaying(manager, NAMES):
                await until(lambda: agent.works(b"with a manager of this release"))

            said = koord("keys", "create", str(site.folder), "--cluster", NAMES.cluster)
            assert "run this command again" not in " ".join(said.split())
            site.place_files()
            site.reload()
            await until(lambda: has_moved(site))
            async with site.connected("manager") as manager, relaying(manager, NAMES):
                await until(lambda: agent.works(b"after"))
            assert await facts_read_by_a_service(site) > read
            assert agent.stored == sorted(set(agent.stored)), "no position was given twice"
