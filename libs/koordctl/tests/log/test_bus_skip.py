"""`koord bus skip`: only a fold that has halted before an event skips it."""

import pytest
from koordctl.log.bus import why_not_skip

READINESS = {
    "manager": "fold: halted before event 26: UnreadableEvent: event 26 of type 'X' cannot be read",
    "scheduler": "ok",
}


def test_a_fold_passes_over_the_event_that_it_stands_before() -> None:
    assert why_not_skip("manager", 26, READINESS) is None


@pytest.mark.parametrize(
    ("fold", "position", "said"),
    [
        ("manager", 2, "manager has halted before event 26, not before 2"),
        ("scheduler", 26, "scheduler has not halted"),
        ("foo", 26, "no running service has a fold 'foo'; known folds: manager, scheduler"),
    ],
)
def test_no_fold_forgets_an_event_that_others_know(fold: str, position: int, said: str) -> None:
    refusal = why_not_skip(fold, position, READINESS)
    assert refusal is not None
    assert said in refusal
