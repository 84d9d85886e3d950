"""The last step: Koordstream is removed, and then the cluster; nothing of either is left on this machine."""

import subprocess
from pathlib import Path

import pytest
from support.cluster.cluster import Cluster
from support.cluster.machine import CGROUP, HOST_INTERFACE
from support.cluster.node_init import CGROUPS, OWN_FOLDERS
from support.cluster.workloads import wait_running, workload
from support.until import until_blocking

pytestmark = [pytest.mark.cluster, pytest.mark.root, pytest.mark.timeout(1200)]


def test_pods_of_users_stay_when_it_is_uninstalled(cluster: Cluster) -> None:
    wait_running(cluster, "web")
    before = cluster.plane.get("pod", "web")["status"]["containerStatuses"][0]
    cluster.plane.kubectl("delete", "-k", "k8s/overlays/dev", "--ignore-not-found", "--timeout=240s")
    after = cluster.plane.get("pod", "web")["status"]["containerStatuses"][0]
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], before["restartCount"])
    plain = workload("plain", "LS", {"cpu": "100m", "memory": "64Mi"})
    for key in ("schedulerName", "priorityClassName"):
        del plain["spec"][key]

    cluster.plane.apply(plain)
    wait_running(cluster, "plain")


def test_nothing_is_left_on_the_machine(cluster: Cluster) -> None:
    folder = str(cluster.folder)
    cluster.down()
    until_blocking(lambda: folder not in Path("/proc/self/mountinfo").read_text(), "no mount is left")
    interfaces = subprocess.run(["ip", "-brief", "link"], capture_output=True, text=True, check=True).stdout
    assert HOST_INTERFACE not in interfaces
    assert list(CGROUPS.glob(f"*/{CGROUP}")) == []
    assert not cluster.folder.exists()
    rules = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
    assert "KUBE-" not in rules
    assert [seen for seen in OWN_FOLDERS.values() if Path(seen).exists()] == ["/var/log"]
