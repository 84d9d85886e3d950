"""The cluster on which the tests of SIG Scheduling run."""

from collections.abc import Iterator

import pytest
from support.kubernetes.control_plane import ControlPlane, missing_programs
from support.sig_scheduling.cluster import running_cluster


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    reason = missing_programs()
    if reason is not None:
        pytest.skip(reason)
    with running_cluster() as plane:
        yield plane
