"""`koord keys` and `koord bus bootstrap` on a real nats-server with TLS, as compose and Kubernetes use them.

`rotate` and `revoke` take effect by a reload of the server: the processes of others keep their connections.
"""

import json
import stat
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from cryptography import x509
from koordcore.bus.client.connection import (
    Denied,
)
from koordcore.bus.factory import bus_on
from koordcore.embedded.ports import LOOPBACK
from koordcore.embedded.process import http_ok
from koordcore.events.nodestate import PodsStarted
from koordcore.ports.desired import DesiredNode
from koordcore.ports.eventlog import LARGEST_APPEND, Appended, Misconfigured
from koordctl.app import app
from support.bus.bus_worlds import sealed
from support.bus.guarded import relaying
from support.bus.installed_server import NAMES, Site, koord
from support.until import until
from typer.testing import CliRunner

pytestmark = [pytest.mark.nats, pytest.mark.slow]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[Site]:
    found = Site(tmp_path / "keys")
    found.create("--node", "worker-1", "--node", "worker-2", "--postgres", "db:5432")
    found.start()
    await until(lambda: http_ok(f"http://{LOOPBACK}:{found.monitor}/healthz?js-enabled-only=true"))
    assert "created" in koord("bus", "bootstrap", env=found.bootstrap_environment())
    assert "created" not in koord("bus", "bootstrap", env=found.bootstrap_environment())
    try:
        yield found
    finally:
        found.kill()


async def test_each_user_has_its_own_key_and_nobody_else_can_read_it(site: Site) -> None:
    seeds = list(site.folder.glob("*/nats.seed"))
    assert {"manager", "scheduler", "agent-worker-1", "agent-worker-2", "operator"} <= {it.parent.name for it in seeds}
    secrets = [*seeds, site.folder / "authority" / "ca.key", site.folder / "nats" / "tls.key"]
    secrets += [site.folder / "postgres" / "password", site.folder / "projector" / "pgpass"]
    secrets += site.folder.glob("*/tls.key")
    assert {stat.S_IMODE(file.stat().st_mode) for file in secrets} == {0o600}
    before = {file: file.read_bytes() for file in secrets}
    site.create("--node", "worker-3", "--postgres", "db:5432")
    assert {file: file.read_bytes() for file in secrets} == before, "a second run keeps every key"
    assert site.seed("agent-worker-3").exists()


def test_servers_of_before_are_restarted_for_the_limit_of_appends(tmp_path: Path) -> None:
    koord("keys", "create", str(tmp_path))
    file = tmp_path / "nats" / "nats-0.conf"
    document = json.loads(file.read_text())
    assert document["jetstream"].pop("limits") == {"batch": {"max_msgs": LARGEST_APPEND}}
    file.write_text(json.dumps(document))
    assert "Restart the servers" in koord("keys", "create", str(tmp_path))
    assert "Reload the servers" in koord("keys", "create", str(tmp_path))


def test_a_server_that_is_not_ours_gets_a_certificate_and_no_key_of_the_log(tmp_path: Path) -> None:
    koord("keys", "create", str(tmp_path), "--certificate", "jaeger", "--certificate", "prometheus")
    folder = tmp_path / "jaeger"
    assert {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {
        "ca.crt": 0o644,
        "tls.crt": 0o644,
        "tls.key": 0o640,  # its user has the group of the files
    }
    made = x509.load_pem_x509_certificate((folder / "tls.crt").read_bytes())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["jaeger", "localhost"]
    before = (folder / "tls.key").read_bytes()
    koord("keys", "create", str(tmp_path))
    assert (folder / "tls.key").read_bytes() == before
    for name in ("scheduler", "authority", "../other"):
        refused = CliRunner().invoke(app, ["keys", "create", str(tmp_path), "--certificate", name])
        assert f"not '{name}'" in refused.output


async def test_an_agent_writes_for_its_node_only_and_reads_no_other(site: Site) -> None:
    async with site.connected("manager") as connection:
        await bus_on(connection, NAMES).desired.put(DesiredNode(node="worker-2"))
    async with (
        site.connected("manager") as manager,
        relaying(manager, NAMES),
        site.connected("agent-worker-1") as connection,
    ):
        bus = bus_on(connection, NAMES)
        mine = sealed("nodestate", "worker-1", PodsStarted(pods=["a"]), 0, "one")
        assert isinstance(await bus.events.append([mine]), Appended)
        with pytest.raises((Denied, Misconfigured), match="permission denied"):
            await bus.events.append([sealed("nodestate", "worker-2", PodsStarted(pods=["a"]), 0, "two")])
        with pytest.raises((Denied, Misconfigured), match="permission denied"):
            await bus.desired.get("worker-2")


@pytest.mark.deep
async def test_a_replaced_or_revoked_key_is_refused_after_a_reload(site: Site, tmp_path: Path) -> None:
    old: dict[str, Path] = {}
    for user in ("scheduler", "agent-worker-2"):
        old[user] = tmp_path / f"{user}.old"
        old[user].write_bytes(site.seed(user).read_bytes())
    async with site.connected("agent-worker-1") as bystander:
        koord("keys", "rotate", str(site.folder), "scheduler")
        koord("keys", "revoke", str(site.folder), "worker-2")
        site.create()
        site.reload()
        for user, seed in old.items():
            await until(lambda user=user, seed=seed: site.is_refused(user, seed))
        async with site.connected("scheduler"):
            pass
        event = sealed("nodestate", "worker-1", PodsStarted(pods=["b"]), 0, "three")
        async with site.connected("manager") as manager, relaying(manager, NAMES):
            assert isinstance(await bus_on(bystander, NAMES).events.append([event]), Appended)
        assert bystander.epoch == 0, "it was never disconnected"
