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
from support.compose import ROOT, missing_programs

OWN_FOLDER = ROOT / "var" / "cluster-test"
KEPT_LOGS = ROOT / "var" / "cluster-logs"
KEPT_CLUSTER = "KOORD_KEPT_CLUSTER"


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
