"""Block files of the stream of facts are damaged: every fold is right, or has stopped and says what is lost.

A test writes facts and knows which ones the log has acknowledged. A fold that follows, one that begins with a snapshot
and one that begins with the first fact are compared with them: after the fault, and again after others have appended.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from faults.matrix import ON_ONE_SERVER, ON_THREE_SERVERS, Case, cases, cases_of_three, is_short
from support.faults.damaged_log import Prepared, run_case

pytestmark = [pytest.mark.nats, pytest.mark.slow]


def parameters() -> Iterator[object]:
    """Every case; all but a few in `make test-all` only."""
    for case in cases():
        yield pytest.param(case, id=str(case), marks=() if is_short(case) else pytest.mark.deep)


@pytest.mark.parametrize("case", list(parameters()))
async def test_no_fold_is_ready_with_another_state(one_server: Prepared, tmp_path: Path, case: Case) -> None:
    result = await run_case(one_server, case.damage, case.when, tmp_path)
    assert result.outcome in ON_ONE_SERVER, f"{case}: {result.outcome}\n{result}"


def of_three() -> Iterator[object]:
    """Cases of three servers."""
    for case, alone in cases_of_three():
        yield pytest.param(case, alone, id=f"{case}, {'one server' if alone else 'all servers'}")


@pytest.mark.parametrize(("case", "alone"), list(of_three()))
@pytest.mark.deep
async def test_a_damaged_copy_of_three_misleads_nobody(
    three_servers_store: Prepared, tmp_path: Path, case: Case, alone: bool
) -> None:
    result = await run_case(three_servers_store, replace(case.damage, alone=alone), case.when, tmp_path)
    assert result.outcome in ON_THREE_SERVERS, f"{case}: {result.outcome}\n{result}"
