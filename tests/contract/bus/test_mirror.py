"""A mirror of the log on a second server follows the first one, and takes its place when it is lost."""

import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from koordcore.bus.client.connection import ConnectionSettings, Denied
from koordcore.bus.client.opening import connect
from koordcore.bus.factory import Bus, bus_on
from koordcore.bus.read.stream_reader import api
from koordcore.bus.setup.manifest import MIRROR
from koordcore.bus.setup.principals import nats_users, seed_file, shares
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig
from koordcore.embedded.ports import LOOPBACK, free_ports
from koordcore.embedded.process import http_ok
from koordcore.embedded.server import nats_server_binary
from koordcore.events.objects import PodSpecAdded
from koordcore.ports.eventlog import Appended, Misconfigured
from koordcore.protocol.objects import ObjectMeta, Pod
from koordcore.state import ClusterState
from support.bus.bus_worlds import sealed
from support.bus.installed_server import NAMES, Site, koord
from support.servers import server_directory
from support.until import DEADLINE_SECONDS, until

pytestmark = pytest.mark.nats

FACTS = 30


class MirroredSite(Site):
    """An installation, and its second server as `koord keys create --mirror` configures it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._leaf, port, self._monitor = free_ports(3)
        self.second_url = f"tls://localhost:{port}"
        self.second_port = port
        self._second: subprocess.Popen[bytes] | None = None

    def create(self, *words: str) -> None:
        super().create(*words, "--server", "localhost", "--mirror", "localhost")
        first, second = self.folder / "nats" / "nats-0.conf", self.folder / "mirror" / "nats-mirror.conf"
        first.write_text(first.read_text().replace("0.0.0.0:7422", f"{LOOPBACK}:{self._leaf}"))
        text = second.read_text().replace('"/etc/nats/', f'"{self.folder}/mirror/').replace(":7422", f":{self._leaf}")
        second.write_text(text.replace('"/data', f'"{self.folder}/second'))

    def start(self) -> None:
        """Start both servers."""
        super().start()
        words = ["--config", str(self.folder / "mirror" / "nats-mirror.conf"), "--addr", LOOPBACK]
        ports = ["-p", str(self.second_port), "-m", str(self._monitor)]
        self._second = subprocess.Popen([str(nats_server_binary()), *words, *ports], stderr=subprocess.DEVNULL)

    def is_ready(self) -> bool:
        """Whether both servers serve."""
        pages = (f"http://{LOOPBACK}:{port}/healthz?js-enabled-only=true" for port in (self.monitor, self._monitor))
        return all(map(http_ok, pages))

    def kill_second(self) -> None:
        """End the second server."""
        assert self._second is not None
        self._second.kill()
        self._second.wait()

    def environment(self, user: str, url: str) -> dict[str, str]:
        """The environment of a command that connects to a server as a user."""
        keys = {"KOORD_NATS_SEED": str(self.seed(user)), "KOORD_NATS_CA": str(self.folder / user / "ca.crt")}
        return {"KOORD_CLUSTER": NAMES.cluster, "KOORD_NATS": url, "KOORD_MIRROR": self.second_url, **keys}

    def row_of_mirror(self) -> str:
        """The row of `koord bus streams` about the mirror."""
        said = koord("bus", "streams", env=self.environment("operator", self.url))
        return " ".join(said.splitlines()[-1].split())

    def promote(self) -> tuple[bool, str]:
        """Run `koord bus promote`. Return whether it promoted the mirror, and what it said."""
        done = subprocess.run(
            [sys.executable, "-m", "koordctl", "bus", "promote"],
            env={**os.environ, **self.environment("bootstrap", self.second_url)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[MirroredSite]:
    found = MirroredSite(tmp_path / "keys")
    found.create()
    found.start()
    try:
        await until(found.is_ready)
        koord("bus", "bootstrap", env=found.bootstrap_environment())
        yield found
    finally:
        found.kill()
        found.kill_second()


async def append(bus: Bus, name: str) -> None:
    event = PodSpecAdded(object=Pod(metadata=ObjectMeta(name=name, namespace="d", uid=name)))
    assert isinstance(await bus.events.append([sealed("podspec", name, event, cause=name)]), Appended)


async def folded(bus: Bus) -> ClusterState:
    """The state at the end of a log, folded from its first fact."""
    state = ClusterState()
    head = await bus.events.head()
    async for batch in bus.events.history(0, head.last_seq):
        for stored in batch:
            state.apply(stored)
    return state


@pytest.mark.deep
async def test_a_mirror_takes_the_place_of_a_lost_server_with_the_same_state_and_positions(site: MirroredSite) -> None:
    async with site.connected("manager") as connection:
        bus = bus_on(connection, NAMES)
        await append(bus, "before")
        koord("bus", "mirror", env=site.environment("bootstrap", site.second_url))
        for number in range(FACTS):
            await append(bus, f"p{number}")
        first = await folded(bus)
        last = first.position
        await until(lambda: site.row_of_mirror().endswith(f" 1 {last} {last} 1 yes"))
        refused, told = site.promote()
        assert (refused, "the mirror heard of the first servers" in told) == (False, True)

    site.kill()
    said: list[str] = []

    def is_promoted() -> bool:
        done, told = site.promote()
        said.append(told)
        return done

    await until(is_promoted, every=1.0)
    assert f"has the log up to position {last}" in said[-1]
    site.port = site.second_port
    async with site.connected("manager") as connection:
        bus = bus_on(connection, NAMES)
        promoted = await folded(bus)
        assert (promoted.position, promoted.hash()) == (first.position, first.hash())
        await append(bus, "after")
        assert (await bus.events.head()).last_seq == last + 1


async def test_the_user_of_a_mirror_asks_for_nothing_but_a_consumer_of_facts_and_writes_none() -> None:
    with server_directory() as directory:
        users = nats_users(NAMES, directory / "keys", (MIRROR,))
        async with NatsServer(
            NatsServerConfig(directory=directory / "nats", users=users, shares=shares(NAMES))
        ) as server:
            seed = seed_file(directory / "keys", MIRROR.name)
            connection = await connect(ConnectionSettings(urls=(server.url,), user=MIRROR.name, nkey_seed_file=seed))
            try:
                asked = (f"STREAM.INFO.{NAMES.ev}", f"CONSUMER.CREATE.{NAMES.audit}", f"STREAM.MSG.GET.{NAMES.ev}")
                for subject in asked:
                    with pytest.raises(Denied):
                        await api(connection, f"$JS.API.{subject}", b"", timeout=DEADLINE_SECONDS)
                with pytest.raises(Misconfigured, match="permission denied"):
                    await append(bus_on(connection, NAMES), "forged")
            finally:
                await connection.drain_and_close()
