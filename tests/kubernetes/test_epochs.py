"""Two logs of one cluster: the manager with the older log leaves the Lease to the manager with the newer one."""

import httpx
import pytest
from koordcore.bus.factory import BusSettings, bootstrap_bus
from support.bus.bus_worlds import SMALL
from support.bus.installed_server import koord
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.installation import NAMESPACE, Installation
from support.until import DEADLINE_SECONDS

pytestmark = [pytest.mark.kubernetes]

NEWER = "newer"


async def begin_newer_log(plane: ControlPlane, installed: Installation) -> None:
    """Run genesis with exactly the rights of its ServiceAccount."""
    await bootstrap_bus(BusSettings(urls=(installed.nats.url,), cluster=NEWER), sizes=SMALL)
    kubeconfig = plane.kubeconfig("genesis", plane.token("koord-genesis"))
    log = {"KOORD_NATS": installed.nats.url, "KOORD_CLUSTER": NEWER}
    koord("bus", "genesis", "--kubeconfig", str(kubeconfig), env=log)


async def test_a_manager_with_an_outdated_log_leaves_the_lease_to_another(
    plane: ControlPlane, installed: Installation
) -> None:
    await begin_newer_log(plane, installed)
    await installed.start_manager("older", webhooks=False)
    url = f"{installed.urls['older']}/readyz"

    def answer() -> str:
        return httpx.get(url, timeout=DEADLINE_SECONDS, trust_env=False).text

    await installed.until(lambda: "epoch 0, the cluster of 1" in answer(), "the older manager says why it is not ready")
    await installed.start_manager("newer", webhooks=False, cluster=NEWER)
    await installed.until(lambda: installed.leader() == "newer", "the manager with the newer log leads")

    events = plane.get("events", "-n", NAMESPACE, "--field-selector", "reason=LogOutdated")["items"]
    assert [event["message"] for event in events] == ["the log is of epoch 0, the cluster of 1"]
    assert "epoch 0, the cluster of 1" in answer()
