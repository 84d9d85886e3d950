"""Which DrainNode `koord drain` replaces by a new one."""

import pytest
from koordctl.descheduling.cordon import is_over


@pytest.mark.parametrize(
    ("phase", "confirm_state", "over"),
    [
        (None, "WaitForConfirm", False), (None, "Aborted", True), ("Pending", "Rejected", True),
        ("Running", "Aborted", False), ("Aborted", "WaitForConfirm", True), ("Complete", "Confirmed", True),
    ],
)  # fmt: skip
def test_a_drain_that_was_aborted_before_it_began_is_over(phase: str | None, confirm_state: str, over: bool) -> None:
    status = {"status": {"phase": phase}} if phase else {}
    assert is_over({"spec": {"confirmState": confirm_state}, **status}) is over
