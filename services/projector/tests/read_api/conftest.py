"""A projector that has folded the believable cluster, and a client of its read API."""

from collections.abc import Iterator

import httpx
import pytest
from support.projector.read_api import CLUSTER
from support.projector.service import served_in_a_thread
from support.servers import fresh_database
from support.until import DEADLINE_SECONDS


@pytest.fixture(scope="module")
def base_url(postgres_server_dsn: str) -> Iterator[str]:
    """Address of the projector."""
    with fresh_database(postgres_server_dsn) as dsn, served_in_a_thread(dsn, CLUSTER) as url:
        yield url


@pytest.fixture
def client(base_url: str) -> Iterator[httpx.Client]:
    """A client of the projector."""
    with httpx.Client(base_url=base_url, timeout=DEADLINE_SECONDS) as client:
        yield client
