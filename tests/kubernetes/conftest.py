"""Fixtures of the suite on a real API server: `make test-kubernetes`."""

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest
from koordcore.embedded.nats import NatsServer
from support.kubernetes.control_plane import ControlPlane, missing_programs, running_control_plane
from support.kubernetes.installation import Installation, install, installation
from support.kubernetes.kubelets import running_kubelets
from support.servers import server_directory


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    """One control plane with k8s/overlays/dev and stand-ins for kubelets, for all tests."""
    reason = missing_programs()
    if reason is not None:
        pytest.skip(reason)
    with server_directory() as directory, running_control_plane(directory) as plane, running_kubelets(plane):
        install(plane)
        yield plane


@pytest.fixture
async def installed(plane: ControlPlane, fresh_nats_server: NatsServer, tmp_path: Path) -> AsyncGenerator[Installation]:
    """The installed objects of k8s/overlays/dev, and an empty log; no service runs yet."""
    async with installation(plane, fresh_nats_server, tmp_path) as whole:
        yield whole
