"""Texts of the resctrl file system: schemata, monitoring counters, and support of the CPU.

`domain.hooks.resctrl` computes the values of a group.

Source: agent spec, 6.9, 15.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from koord_agent.domain.kernel.counters import MalformedCounter, whole_number

L3: Final = "L3"
MB: Final = "MB"
GROUPS: Final = ("LSR", "LS", "BE")
INTEL: Final = "GenuineIntel"
AMD: Final = "AuthenticAMD"
UNKNOWN_VENDOR: Final = "unknown"
"""Vendor of a CPU whose /proc/cpuinfo states none."""
CONTROL_FLAGS: Final = frozenset({"cat_l3", "mba"})
MONITOR_FLAGS: Final = CONTROL_FLAGS | {"cqm_llc", "cqm_occup_llc", "cqm_mbm_total", "cqm_mbm_local"}
MONITOR_FILES: Final = ("llc_occupancy", "mbm_local_bytes", "mbm_total_bytes")
MONITOR_PREFIX: Final = "mon_L3_"

_HEX: Final = frozenset("0123456789abcdefABCDEF")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schemata:
    """Settings of a resctrl group by cache id: mask of cache ways (L3), memory bandwidth (MB). Empty without a line."""

    l3: Mapping[int, int] = field(default_factory=dict[int, int])
    mb: Mapping[int, int] = field(default_factory=dict[int, int])

    def of(self, kind: str) -> Mapping[int, int]:
        """`kind` is "L3" or "MB"."""
        return self.l3 if kind == L3 else self.mb


def parse_schemata(text: str, caches: int | None = None) -> Schemata:
    """Parse the lines `L3:<id>=<hex>;...` and `MB:<id>=<decimal>;...` of a schemata file (agent spec, 15 (3)).

    Other lines are ignored. Items without exactly one `=` are skipped. `caches` is the number of ids that each line
    must have; None: as many as the first line.

    Raises:
        MalformedCounter: A number is invalid, or a line has another number of ids.
    """
    found: dict[str, dict[int, int]] = {}
    for line in text.splitlines():
        key, colon, rest = line.strip().partition(":")
        kind = key.strip()
        if not colon or kind not in (L3, MB):
            continue
        values: dict[int, int] = {}
        for item in rest.split(";"):
            parts = item.split("=")
            if len(parts) == 2:
                values[_number(parts[0].strip(), kind)] = _value(kind, parts[1].strip())
        if caches is None:
            caches = len(values)
        if len(values) != caches:
            raise MalformedCounter(f"schemata: {kind} has {len(values)} cache ids, want {caches}")
        found[kind] = values
    return Schemata(l3=found.get(L3, {}), mb=found.get(MB, {}))


def needs_write(current: Schemata, kind: str, wanted: Mapping[int, int]) -> bool:
    """Whether the wanted values of a kind ("L3" or "MB") differ in any value or in the set of cache ids (D-25)."""
    return dict(current.of(kind)) != dict(wanted)


def _value(kind: str, text: str) -> int:
    if kind == MB:
        return _number(text, kind)
    if not text or not set(text) <= _HEX:
        raise MalformedCounter(f"schemata: {kind}: not a mask: {text!r}")
    return int(text, 16)


def _number(text: str, kind: str) -> int:
    number = whole_number(text)
    if number is None:
        raise MalformedCounter(f"schemata: {kind}: not a number: {text[:40]!r}")
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class ResctrlSupport:
    """Whether a CPU can divide and monitor its last-level cache and memory bandwidth."""

    vendor: str  # `vendor_id` of /proc/cpuinfo, or `UNKNOWN_VENDOR`
    control: bool  # Whether cache ways and memory bandwidth can be divided
    monitor: bool  # Whether the use of cache and memory bandwidth can be measured, too


def resctrl_support(cpuinfo: str) -> ResctrlSupport:
    """From the text of /proc/cpuinfo.

    Source: agent spec, 6.9, 15.
    """
    vendor, flags = "", frozenset[str]()
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "vendor_id" and not vendor:
            vendor = value.strip()
        elif key.strip() == "flags" and not flags:
            flags = frozenset(value.split())
    vendor = vendor or UNKNOWN_VENDOR
    known = vendor in (INTEL, AMD)
    return ResctrlSupport(
        vendor=vendor, control=known and flags >= CONTROL_FLAGS, monitor=known and flags >= MONITOR_FLAGS
    )


def counts_in_megabytes(mountinfo: str) -> bool:
    """Return whether bandwidth (MB) is in megabytes per second: resctrl is mounted with the option `mba_MBps`.

    `mountinfo` is the text of /proc/<pid>/mountinfo. All mounts of resctrl have the same options.
    """
    return any(
        " - resctrl " in line and "mba_MBps" in line.rpartition(" ")[2].split(",") for line in mountinfo.splitlines()
    )


def parse_monitoring(groups: Mapping[str, Mapping[str, str]]) -> dict[int, dict[str, int]]:
    """Return cache id -> file name -> counter, from the texts of a resctrl group by directory and file name.

    Other directories than `mon_L3_<id>` and files without a number (`Unavailable`, `Error`) are left out.

    Source: agent spec, 6.9 (D-9).
    """
    caches: dict[int, dict[str, int]] = {}
    for directory, files in groups.items():
        cache = directory.removeprefix(MONITOR_PREFIX)
        number = whole_number(cache)
        if cache == directory or number is None:
            continue
        counters = {
            name: value
            for name, text in files.items()
            if name in MONITOR_FILES and (value := whole_number(text.strip())) is not None
        }
        if counters:
            caches[number] = counters
    return caches
