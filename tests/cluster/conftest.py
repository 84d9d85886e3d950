"""One real cluster with Koordstream for all tests of the suite: `make test-cluster`.

With KOORD_KEPT_CLUSTER=1 it is the one of `make cluster`, which stays: for one file at a time while it is written.
"""

import os
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest
from support.cluster.cluster import FOLDER, Cluster, unusable
from support.cluster.koord_command import Operator, operator
from support.cluster.machine import CGROUP
from support.cluster.node_init import CGROUPS
from support.cluster.suppression import BY_QUOTA, NO_LIMIT, class_quota, configure
from support.cluster.workloads import container_files, kernel_values, wait_running, watched
from support.compose import ROOT, missing_programs
from support.until import until_blocking

OWN_FOLDER = ROOT / "var" / "cluster-test"
KEPT_LOGS = ROOT / "var" / "cluster-logs"
KEPT_CLUSTER = "KOORD_KEPT_CLUSTER"
PODS = ("batch", "pinned", "web")
"""Pods of test_first_day."""
MOST_SHARES = "262144"


@pytest.fixture(scope="session")
def cluster() -> Generator[Cluster]:
    """A cluster with k8s/overlays/dev. Afterwards the logs of its last run lie in var/cluster-logs."""
    reason = unusable() or missing_programs()
    if reason:
        pytest.skip(reason)
    if os.environ.get(KEPT_CLUSTER):
        assert Cluster(FOLDER).machine.is_running, f"{KEPT_CLUSTER}: make cluster"
        yield Cluster(FOLDER)
        return
    assert not Cluster(FOLDER).machine.is_running, "the machine has one cluster at a time: make cluster-down"
    cluster = Cluster(OWN_FOLDER)
    cluster.down()
    try:
        cluster.up()
        cluster.load_images()
        cluster.install()
        yield cluster
    finally:
        for name in ("log", "var-log"):
            shutil.rmtree(KEPT_LOGS / name, ignore_errors=True)
            if (cluster.machine.folder / name).exists():
                shutil.copytree(cluster.machine.folder / name, KEPT_LOGS / name, symlinks=True)
        cluster.down()


@pytest.fixture
def someone(cluster: Cluster, tmp_path: Path) -> Generator[Operator]:
    """An operator of the cluster with the command `koord`."""
    with operator(cluster, tmp_path) as found:
        yield found


@pytest.fixture
def suppression(cluster: Cluster) -> Generator[None]:
    """CPU suppression by quota. The node comes before all else on this machine, so its pods use what they want."""
    shares = CGROUPS / "cpu" / CGROUP / "cpu.shares"
    before = shares.read_text()
    shares.write_text(MOST_SHARES)
    try:
        try:
            configure(cluster, BY_QUOTA)
            until_blocking(lambda: class_quota(cluster) > 0, "best effort has a quota", every=0.05)
            # Below the quota of the class, batch pods have none of their own.
            until_blocking(lambda: kernel_values(cluster, "batch")["quota"] == "-1", "the quota of batch", every=0.05)
            yield
        finally:
            configure(cluster, None)
        until_blocking(lambda: class_quota(cluster) == NO_LIMIT, "best effort has no quota", every=0.05)
        until_blocking(lambda: kernel_values(cluster, "batch")["quota"] == "30000", "the quota of batch", every=0.05)
    finally:
        shares.write_text(before)


def restarts(cluster: Cluster) -> dict[str, tuple[str, int]]:
    """Uid and restarts of `PODS`."""
    found: dict[str, tuple[str, int]] = {}
    for item in cluster.plane.get("pods", "-n", "default")["items"]:
        if item["metadata"]["name"] in PODS:
            status = item["status"]["containerStatuses"][0]
            found[item["metadata"]["name"]] = (item["metadata"]["uid"], status["restartCount"])
    return found


@pytest.fixture
def protected(cluster: Cluster) -> Generator[None]:
    """The pods keep each of their values all the time, and none is started again."""
    wait_running(cluster, *PODS)
    files = {f"{name} {value}": file for name in PODS for value, file in container_files(cluster, name).items()}
    before = {key: file.read_text().strip() for key, file in files.items()}
    counted = restarts(cluster)
    with watched(files) as seen:
        yield
    assert {key: values for key, values in seen.items() if values != {before[key]}} == {}
    assert restarts(cluster) == counted
