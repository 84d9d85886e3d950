"""When `koord nightly` runs its checks."""

from datetime import UTC, datetime, time, timedelta

import pytest
from koordctl.installation.nightly import is_due

AT = time(2, 30)
TONIGHT = datetime(2026, 3, 2, 2, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("now", "ran", "due"),
    [
        (TONIGHT - timedelta(seconds=1), TONIGHT - timedelta(hours=23), False),
        (TONIGHT, TONIGHT - timedelta(hours=23), True),
        (TONIGHT, TONIGHT, False),
        (TONIGHT + timedelta(hours=20), TONIGHT - timedelta(hours=24), True),
        (TONIGHT - timedelta(hours=2), TONIGHT - timedelta(hours=20), False),
        (TONIGHT - timedelta(hours=2), datetime.fromtimestamp(0, UTC), True),
    ],
)
def test_a_night_has_one_run_and_a_missed_one_is_made_up_for(now: datetime, ran: datetime, due: bool) -> None:
    assert is_due(now, AT, ran.timestamp()) is due
