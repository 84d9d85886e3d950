"""The measurement beside kube-scheduler runs to its end, on a small part of one row."""

import pytest
from support.guide import Reader
from support.kubernetes.control_plane import missing_programs
from support.servers import server_directory

COMMAND = "python -m tests.bench kubernetes --only plain --nodes 1000 --scale 0.02 --runs 1"
"""Twenty nodes and forty pods."""

pytestmark = [pytest.mark.kubernetes]


def test_both_schedulers_bind_the_pods_of_a_small_row() -> None:
    if reason := missing_programs():
        pytest.skip(reason)
    with server_directory() as folder:
        said = Reader(folder, {}).run(COMMAND)
    assert "kube-scheduler" in said
    assert "failed" not in said
