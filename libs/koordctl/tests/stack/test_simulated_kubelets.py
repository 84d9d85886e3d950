"""When a deleted pod leaves a simulated node."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from koordctl.stack.kubernetes.kubelets import lingering_seconds

DELETED = datetime(2026, 1, 1, 12, tzinfo=UTC)


def pod(grace: int | None, *sleeps: int) -> dict[str, Any]:
    """A pod with a container for each sleep of a preStop hook (0: no hook), deleted at noon with this grace period."""
    hooks = ({"lifecycle": {"preStop": {"sleep": {"seconds": seconds}}}} if seconds else {} for seconds in sleeps)
    until = (DELETED + timedelta(seconds=grace or 0)).strftime("%Y-%m-%dT%H:%M:%SZ")
    deletion = {"deletionTimestamp": until, "deletionGracePeriodSeconds": grace} if grace is not None else {}
    return {"metadata": deletion, "spec": {"containers": list(hooks)}}


@pytest.mark.parametrize(
    ("deleted", "seconds"),
    [
        (pod(None, 20), 0),
        (pod(30, 0), 0),
        (pod(30, 20), 20),
        (pod(30, 0, 10, 20), 20),
        (pod(15, 20), 15),
        (pod(0, 20), 0),
    ],
)
def test_a_deleted_pod_stays_while_its_hooks_sleep_within_the_grace_period(
    deleted: dict[str, Any], seconds: int
) -> None:
    assert lingering_seconds(deleted, DELETED) == seconds


def test_a_pod_that_is_listed_again_stays_for_the_rest() -> None:
    assert lingering_seconds(pod(30, 20), DELETED.replace(second=5)) == 15
    assert lingering_seconds(pod(30, 20), DELETED.replace(second=25)) == 0
