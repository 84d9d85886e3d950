"""The pages on security and backups, where they need a server of the log with TLS and the keys of an installation."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from koordcore.bus.factory import bus_on
from koordcore.bus.names import BusNames
from koordcore.embedded.ports import LOOPBACK
from koordcore.embedded.process import http_ok
from koordcore.embedded.server import nats_server_binary
from koordcore.events.nodestate import PodsStarted
from koordcore.ports.eventlog import Appended
from koordctl.stack.nodes import simulated_nodes, write_nodes
from support.bus.bus_worlds import sealed
from support.bus.guarded import relaying
from support.bus.installed_server import IssuingSite, Site
from support.guide import Command, steps
from support.pages import DOCS, ReaderElsewhere, sections_for
from support.until import until, until_blocking

pytestmark = [pytest.mark.deep, pytest.mark.nats, pytest.mark.slow]

SECURITY = DOCS / "security.md"
NATS = "tls://nats:4222"
AGENT = (
    "koord-agent --nats-token-file token --nats-urls tls://nats:4222 --nats-ca-file keys/nats/ca.crt --cluster dev "
    "--node worker-2 --simulated-nodes-file nodes.json --state-dir agent"
)


@contextmanager
def serving(site: Site) -> Generator[None]:
    """Run the server of an installation."""
    site.place_files()
    site.start()
    try:
        until_blocking(lambda: http_ok(f"http://{LOOPBACK}:{site.monitor}/healthz?js-enabled-only=true"), "it serves")
        yield
    finally:
        site.kill()


async def test_a_backup_is_restored_on_servers_of_their_own_by_the_commands_of_the_page(tmp_path: Path) -> None:
    site = Site(tmp_path / "keys")
    reader = ReaderElsewhere(tmp_path, {"KOORD_VAR": str(tmp_path / "var")}, {NATS: site.url})
    reader.run("koord keys create keys --node worker-1 --log-size 3Gi")

    def run_as(user: str, command: str) -> str:
        key = f"KOORD_NATS={NATS} KOORD_NATS_SEED=keys/{user}/nats.seed KOORD_NATS_CA=keys/{user}/ca.crt"
        return reader.run(f"{key} {command}")

    fact = sealed("nodestate", "worker-1", PodsStarted(pods=["a"]), 0, "one")
    with serving(site):
        run_as("bootstrap", "koord bus bootstrap --log-size 3Gi")
        names = BusNames("dev")
        async with (
            site.connected("agent-worker-1") as connection,
            site.connected("manager") as manager,
            relaying(manager, names),
        ):
            assert isinstance(await bus_on(connection, names).events.append([fact]), Appended)
        run_as("backup", "koord backup koord-2026-11-23")
    (tmp_path / "keys" / "data").rename(tmp_path / "lost")

    with serving(site):
        (page,) = sections_for(__file__, tmp_path / "pages")
        reader.follow(page)
        async with site.connected("auditor") as connection:
            head = await bus_on(connection, BusNames("dev")).events.head()
    assert head.last_seq == 1


async def facts_of_an_agent(site: Site, reader: ReaderElsewhere, folder: Path) -> int:
    """Run an agent with the token until the log has a fact of it, and return the number of facts."""
    user = "KOORD_NATS_SEED=keys/bootstrap/nats.seed KOORD_NATS_CA=keys/bootstrap/ca.crt"
    reader.run(f"KOORD_NATS={NATS} {user} koord bus bootstrap")
    (node,) = simulated_nodes("1")
    write_nodes(folder / "nodes.json", [{**node, "metadata": {**node["metadata"], "name": "worker-2"}}])
    names = BusNames("dev")
    async with (
        site.connected("auditor") as connection,
        site.connected("manager") as manager,
        relaying(manager, names),
    ):
        log = bus_on(connection, names).events

        async def count() -> int:
            return (await log.head()).last_seq

        with reader.started(Command(AGENT, "...")):
            return await until(count, "the log has a fact of the agent")


async def test_agents_are_admitted_and_refused_by_the_commands_of_the_page(tmp_path: Path) -> None:
    site = IssuingSite(tmp_path / "keys")
    places = {NATS: site.url}
    reader = ReaderElsewhere(tmp_path, {"KOORD_VAR": str(tmp_path / "var")}, places)
    commands = [step for step in steps(SECURITY) if isinstance(step, Command)]
    issuing = next(at for at, each in enumerate(commands) if each.text.startswith("koord keys issue "))
    for each in commands[:issuing]:
        reader.carry_out(each)
    token, old = (tmp_path / "token").read_text(), tmp_path / "old.seed"
    old.write_bytes(site.seed("scheduler").read_bytes())

    with serving(site), reader.started(commands[issuing]):
        await until(lambda: site.admits("worker-2", token))
        assert site.server is not None
        assert await facts_of_an_agent(site, reader, tmp_path) > 0
        # Other servers run on this machine, too.
        places["nats-server --signal reload"] = f"{nats_server_binary()} --signal reload={site.server.pid}"
        for each in commands[issuing + 1 :]:
            site.place_files()
            reader.carry_out(each)
        await until(lambda: site.is_refused("scheduler", old))
        assert await site.refuses("worker-2", token)
        async with site.connected("scheduler"):
            pass
