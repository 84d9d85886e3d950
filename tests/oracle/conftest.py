"""The programs that `make test-oracle` builds, which the tests of this folder ask."""

from collections.abc import Iterator
from typing import Any, TypeVar

import pytest
from support.oracle.descheduling.program import Descheduler
from support.oracle.lines import LineProgram, running
from support.oracle.program import Oracle
from support.oracle.recommending.program import Recommender

P = TypeVar("P", bound=LineProgram[Any])


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    yield from _built(Oracle)


@pytest.fixture(scope="session")
def descheduler() -> Iterator[Descheduler]:
    yield from _built(Descheduler)


@pytest.fixture(scope="session")
def recommender() -> Iterator[Recommender]:
    yield from _built(Recommender)


def _built(kind: type[P]) -> Iterator[P]:
    if not kind.path.exists():
        pytest.skip(f"no {kind.path}: `make test-oracle` builds it where Go is installed")
    with running(kind) as program:
        yield program
