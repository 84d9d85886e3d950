"""The program that `make test-oracle` builds, which all tests of this folder ask."""

from collections.abc import Iterator

import pytest
from support.oracle.program import PROGRAM, Oracle, running_oracle


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    if not PROGRAM.exists():
        pytest.skip(f"no {PROGRAM}: `make test-oracle` builds it where Go is installed")
    with running_oracle() as running:
        yield running
