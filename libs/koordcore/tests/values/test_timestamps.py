"""Times of events as text."""

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st
from koordcore.values.timestamps import rfc3339

zones = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(datetime(1000, 1, 3), datetime(9999, 12, 29), timezones=zones)  # noqa: DTZ001 - bounds, naive


@given(moments)
def test_a_time_is_written_in_utc_with_all_its_microseconds(moment: datetime) -> None:
    written = rfc3339(moment)
    assert written == moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert len(written) == 27


@given(moments, moments)
def test_the_order_of_texts_is_that_of_times(one: datetime, other: datetime) -> None:
    assert (rfc3339(one) < rfc3339(other)) == (one < other)
