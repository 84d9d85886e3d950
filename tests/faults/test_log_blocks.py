"""Block files of the stream of facts are damaged: every fold is right, or has stopped and says what is lost.

A test writes facts and knows which ones the log has acknowledged. A fold that follows, one that begins with a snapshot
and one that begins with the first fact are compared with them: after the fault, and again after others have appended.
"""

import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from faults.matrix import Case, cases, is_short
from support.faults.damaged_log import Prepared, prepare, run_case
from support.servers import run_now

pytestmark = [pytest.mark.nats, pytest.mark.slow]


def prepared_log(replicas: int) -> Generator[Prepared]:
    """A store that the cases of this worker copy."""
    with tempfile.TemporaryDirectory(prefix="koord-faults-") as folder:
        yield run_now(prepare(Path(folder), replicas))


@pytest.fixture(scope="session")
def one_server() -> Iterator[Prepared]:
    """The store of one server."""
    yield from prepared_log(1)


def parameters() -> Iterator[object]:
    """Every case; all but a few in `make test-all` only."""
    for case in cases():
        yield pytest.param(case, id=str(case), marks=() if is_short(case) else pytest.mark.deep)


@pytest.mark.parametrize("case", parameters())
async def test_no_fold_is_ready_with_another_state(one_server: Prepared, tmp_path: Path, case: Case) -> None:
    result = await run_case(one_server, case.damage, case.when, tmp_path)
    assert result.outcome in case.allowed, f"{case}: {result.outcome}\n{result}"
