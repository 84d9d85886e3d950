"""Which usage reports of a node the services use, and which they pass over."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from koordcore.bus.read.report_gate import REPORTS_AT_ONCE, ReportGate
from koordcore.bus.refusals import Refusals, Refused
from koordcore.events.envelope import AggregateRef, Draft, StoredEvent
from koordcore.events.observation import (
    AggregatedUsage,
    ContainerUsage,
    GpuUsage,
    HostApplicationUsage,
    NodeUsageReported,
    NumaUsage,
    PodUsage,
    Usage,
)
from koordcore.service.clock import ScaledClock, SystemClock
from koordcore.values.resources import MAX_AMOUNT
from koordcore.values.timestamps import rfc3339
from support.histories.recording import stored

NOON = 1_772_000_000.0  # Unix seconds at which the server stores the first report


def reported(seconds: float, *, stored_at: float = NOON, seq: int = 1, **fields: object) -> StoredEvent:
    """A report of node n1 that is dated so many seconds after noon."""
    report = NodeUsageReported(
        updated_at=rfc3339(datetime.fromtimestamp(NOON + seconds, UTC)),
        report_interval_seconds=60,
        aggregate_duration_seconds=300,
    )
    event = msgspec.structs.replace(report, **fields)
    return at(stored(seq, Draft(AggregateRef("node", "n1"), event, 0)), stored_at)


def at(message: StoredEvent, unix: float) -> StoredEvent:
    return StoredEvent(message.seq, message.ref, message.headers, message.body, int(unix * 1e9))


def gate(clock: SystemClock | ScaledClock | None = None) -> ReportGate:
    return ReportGate(clock or SystemClock(), Refusals("test"))


def refused(of: ReportGate) -> dict[Refused, int]:
    return dict(of.refusals.of_node["n1"].counts) if of.refusals.of_node else {}


def test_a_report_dated_more_than_a_minute_ahead_is_passed_over_and_later_ones_count() -> None:
    reading = gate()
    assert reading.read(reported(59.0)) is not None
    assert reading.read(reported(61.0)) is None
    assert reading.read(reported(73 * 365 * 86400.0)) is None
    assert reading.read(reported(-3600.0)) is not None
    assert refused(reading) == {Refused.REPORT_AHEAD: 2}
    assert "s after the server stored it" in reading.refusals.of_node["n1"].reason


def test_the_time_of_a_fast_run_is_compared_with_the_time_of_storing_in_this_run() -> None:
    reading = gate(ScaledClock(origin_real_unix=NOON - 60, origin_unix=NOON - 60, speed=60.0))
    assert reading.read(reported(59 * 60.0)) is not None, "an hour has passed since the run began"
    assert reading.read(reported(62 * 60.0)) is None


def test_a_node_that_reports_all_the_time_is_read_once_a_second() -> None:
    reading = gate()
    read = [reading.read(reported(0.0, stored_at=NOON + number / 100)) for number in range(10_000)]
    assert REPORTS_AT_ONCE + 98 <= sum(report is not None for report in read) <= REPORTS_AT_ONCE + 100
    assert refused(reading)[Refused.REPORT_OVER_QUOTA] > 9_000
    assert reading.read(reported(0.0, stored_at=NOON + 200)) is not None


@pytest.mark.parametrize("updated_at", ["yesterday", "", "2026-01-01T00:00:00"])
def test_a_report_without_a_time_that_can_be_compared_is_passed_over(updated_at: str) -> None:
    reading = gate()
    assert reading.read(reported(0.0, updated_at=updated_at)) is None
    assert refused(reading) == {Refused.UNREADABLE_REPORT: 1}


def with_everywhere(amount: int) -> list[dict[str, Any]]:
    """Fields of reports, each with this amount in another place."""
    fields: list[dict[str, Any]] = []
    for usage in (Usage(amount, 1), Usage(1, amount)):
        pod = PodUsage(uid="u", namespace="d", name="p", priority_class="", qos="", usage=Usage(1, 1))
        window = [AggregatedUsage(duration_seconds=60, usage={"p95": usage})]
        fields += [
            {"node_usage": usage},
            {"system_usage": usage},
            {"prod_reclaimable": usage},
            {"prod_peak": usage},
            {"aggregated_node_usages": window},
            {"aggregated_system_usages": window},
            {"pods": [msgspec.structs.replace(pod, usage=usage)]},
            {"pods": [msgspec.structs.replace(pod, containers=[ContainerUsage(name="c", usage=usage)])]},
            {"host_applications": [HostApplicationUsage(name="h", usage=usage)]},
            {"numa": [NumaUsage(numa_node=0, node_usage=usage)]},
            {"numa": [NumaUsage(numa_node=0, node_usage=Usage(1, 1), system_usage=usage)]},
        ]
    for name in ("core_percent", "memory_bytes", "memory_percent"):
        fields.append({"gpus": [msgspec.structs.replace(GpuUsage(minor=0, uuid="g"), **{name: amount})]})
    return [*fields, {"report_interval_seconds": amount}, {"aggregate_duration_seconds": amount}]


@pytest.mark.parametrize("amount", [10**40, 1 << 63, (1 << 63) - 1, MAX_AMOUNT + 1, -1, -(1 << 63), -(10**19)])
def test_an_amount_that_no_machine_can_have_is_passed_over_wherever_it_is(amount: int) -> None:
    reading = gate()
    hostile = with_everywhere(amount)
    for fields in hostile:
        assert reading.read(reported(0.0, **fields), is_counted=False) is None, fields
    assert refused(reading) == {Refused.UNREADABLE_REPORT: len(hostile)}
    assert "$." in reading.refusals.of_node["n1"].reason, "it names the field"


def test_the_largest_and_the_smallest_amounts_of_a_machine_are_read() -> None:
    for amount in (0, MAX_AMOUNT):
        for fields in with_everywhere(amount):
            assert gate().read(reported(0.0, **fields)) is not None
    assert gate().read(reported(0.0, be_quota_us=-1, signals={"lsSlowdown": -3.5})) is not None


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"1e999", b"-1e300", b"1e300"])
def test_a_number_that_is_not_finite_or_too_large_is_passed_over(number: bytes) -> None:
    reading = gate()
    plain = reported(0.0, signals={"cpuPressure": 1.5})
    assert reading.read(plain) is not None
    for digits in (b"1.5", b"300"):
        body = plain.body.replace(digits, number)
        assert body != plain.body
        assert reading.read(StoredEvent(2, plain.ref, plain.headers, body, plain.stored_at_ns)) is None
    assert refused(reading) == {Refused.UNREADABLE_REPORT: 2}


def test_a_message_without_an_envelope_is_passed_over() -> None:
    reading = gate()
    assert reading.read(at(StoredEvent(1, AggregateRef("node", "n1"), {}, b"{}"), NOON)) is None
    assert refused(reading) == {Refused.UNREADABLE_REPORT: 1}
