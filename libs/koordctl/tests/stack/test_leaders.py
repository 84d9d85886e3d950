"""What a lease says at a moment: who leads, or that nobody does and when that ends."""

import os

import pytest
from koordcore.embedded.identity import ProcessIdentity, identify, running_seconds
from koordcore.service.leader.lease import LeaseRecord
from koordctl.stack.leaders import judge_lease

NOW = 1_800_000_000.0


def lease(held_seconds: float, renewed_seconds: float, holder: str = "scheduler_1a") -> LeaseRecord:
    return LeaseRecord(
        holder=holder,
        epoch=7,
        acquired_at_unix=NOW - held_seconds,
        renewed_at_unix=NOW - renewed_seconds,
        duration_seconds=15,
    )


def test_a_leader_is_named_with_the_time_since_which_it_leads() -> None:
    leads, sentence = judge_lease("scheduler", lease(185, 1.5), NOW - 200, NOW)

    assert leads
    assert sentence == "scheduler: scheduler_1a leads since 2027-01-15 07:56:55 UTC (3 min 5 s)"


@pytest.mark.parametrize(
    ("record", "began_at", "why"),
    [
        (None, NOW - 200, "no lease is held"),
        (lease(185, 1, holder=""), NOW - 200, "no lease is held"),
        (lease(185, 1), None, "the previous leader's lease expires in 14.0 s"),
        (lease(185, 4), NOW - 3, "the previous leader's lease expires in 11.0 s"),
        (lease(185, 12), NOW - 200, "the previous leader's lease expires in 3.0 s"),
        (lease(185, 20), NOW - 200, "the previous leader's lease has expired"),
    ],
    ids=["none", "released", "gone", "replaced", "stands still", "ended"],
)
def test_nobody_leads_whose_process_is_not_the_one_that_took_the_lease_or_does_not_renew(
    record: LeaseRecord | None, began_at: float | None, why: str
) -> None:
    assert judge_lease("scheduler", record, began_at, NOW) == (False, f"scheduler: no leader ({why})")


def test_a_process_knows_for_how_long_it_runs() -> None:
    myself = identify(os.getpid())
    assert myself is not None
    seconds = running_seconds(myself)
    assert seconds is None or seconds > 0


def test_a_process_that_is_gone_runs_for_no_time() -> None:
    assert running_seconds(ProcessIdentity(pid=os.getpid(), started="0")) is None
