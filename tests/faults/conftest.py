"""Stores that the cases of a worker copy."""

import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from support.faults.damaged_log import Prepared, prepare
from support.servers import run_now


def _prepared(replicas: int) -> Generator[Prepared]:
    with tempfile.TemporaryDirectory(prefix="koord-faults-") as folder:
        yield run_now(prepare(Path(folder), replicas))


@pytest.fixture(scope="session")
def one_server() -> Iterator[Prepared]:
    """The store of one server: facts in four blocks, and snapshots."""
    yield from _prepared(1)


@pytest.fixture(scope="session")
def three_servers_store() -> Iterator[Prepared]:
    """The same on three servers, each with a copy."""
    yield from _prepared(3)
