"""Counters of a pod's disks and connections: its devices in /proc/diskstats, and /proc/<pid>/net/snmp.

`domain.qos.contention.interference` computes signals from two readings.

Source: agent spec, 18 (disk-io, network).
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from koord_agent.domain.kernel.counters import MalformedCounter, whole_number

_FIRST_COUNTER: Final = 3
_LEAST_FIELDS: Final = 11
_TCP: Final = "Tcp:"
_DEVICE: Final = re.compile(r"\d+:\d+")


class DiskCounters(NamedTuple):
    """Counters of a disk: finished reads and writes, and the milliseconds that they took together.

    The order of the fields is that of `interference.disk_await_ms`.
    """

    reads: int
    read_ms: int
    writes: int
    write_ms: int


class TcpCounters(NamedTuple):
    """Numbers of TCP segments that were sent and retransmitted, in the order of `interference.retransmit_ratio`."""

    out: int
    retransmitted: int


def parse_devices(text: str) -> frozenset[str]:
    """Return MAJ:MIN of every device in the text of `io.stat` (v2) or `blkio.throttle.io_serviced_recursive` (v1)."""
    firsts = (line.split(" ", 1)[0] for line in text.splitlines())
    return frozenset(first for first in firsts if _DEVICE.fullmatch(first))


def parse_diskstats(text: str) -> Mapping[str, DiskCounters]:
    """Return MAJ:MIN -> counters from the text of /proc/diskstats. Invalid lines are left out."""
    found: dict[str, DiskCounters] = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < _LEAST_FIELDS:
            continue
        numbers = [whole_number(field) for field in fields[_FIRST_COUNTER:_LEAST_FIELDS]]
        reads, _, _, read_ms, writes, _, _, write_ms = numbers
        if reads is not None and read_ms is not None and writes is not None and write_ms is not None:
            found[f"{fields[0]}:{fields[1]}"] = DiskCounters(reads, read_ms, writes, write_ms)
    return found


def parse_tcp(text: str) -> TcpCounters:
    """Return the counters of the protocol `Tcp:` in the text of /proc/<pid>/net/snmp.

    Raises:
        MalformedCounter: The text has another form.
    """
    lines = [line.split() for line in text.splitlines() if line.startswith(_TCP)]
    if len(lines) != 2:
        raise MalformedCounter(f"snmp: no names and values of Tcp: {text[:60]!r}")
    values = dict(zip(*lines, strict=False))
    out, again = whole_number(values.get("OutSegs", "")), whole_number(values.get("RetransSegs", ""))
    if out is None or again is None:
        raise MalformedCounter("snmp: OutSegs or RetransSegs is no number")
    return TcpCounters(out, again)


def common_disks(
    previous: Mapping[str, DiskCounters], current: Mapping[str, DiskCounters]
) -> tuple[DiskCounters, DiskCounters]:
    """Return the sums of two readings of disk counters, earlier and later, over the devices that both readings have."""
    devices = previous.keys() & current.keys()
    before, after = ([reading[device] for device in sorted(devices)] for reading in (previous, current))
    return _sum(before), _sum(after)


def _sum(counters: list[DiskCounters]) -> DiskCounters:
    return DiskCounters(*(sum(column) for column in zip(DiskCounters(0, 0, 0, 0), *counters, strict=True)))
