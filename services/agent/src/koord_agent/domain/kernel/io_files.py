"""Lines of block-IO files, one for each device: their form on cgroup v2, and whether a file has one already.

    v1  blkio.throttle.read_bps_device   253:0 1048576
    v2  io.max                           253:0 rbps=1048576 wbps=max riops=max wiops=max
    v1  blkio.cost.weight                253:0 60
    v2  io.weight                        default 100
                                         253:0 60

A limit of 0 means none. A weight of 100 is the default on both versions.

Source: agent spec, 16; reality, 4.15; Linux, cgroup-v2.rst (IO interface files).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from koord_agent.domain.kernel.counters import whole_number

IO_MAX: Final = "io.max"
IO_WEIGHT: Final = "io.weight"
KEY_OF_LIMIT: Final[Mapping[str, str]] = {
    "blkio.throttle.read_bps_device": "rbps",
    "blkio.throttle.write_bps_device": "wbps",
    "blkio.throttle.read_iops_device": "riops",
    "blkio.throttle.write_iops_device": "wiops",
}
"""Name of a limit on cgroup v1 -> its key in io.max."""
NO_LIMIT: Final = "max"
DEFAULT: Final = "default"
DEFAULT_WEIGHT: Final = "100"


def v2_line(name: str, line: str) -> str:
    """Return the text to write on cgroup v2 for a line `MAJ:MIN value` of a file that has this name on v1."""
    device, _, value = line.strip().partition(" ")
    key = KEY_OF_LIMIT.get(name)
    if key is None:
        return f"{device} {DEFAULT if value == DEFAULT_WEIGHT else value}"
    return f"{device} {key}={NO_LIMIT if value == '0' else value}"


def v1_lines(name: str, text: str) -> str:
    """Return the lines that a file of cgroup v2 would have on v1. Devices without this limit are left out."""
    key = KEY_OF_LIMIT.get(name)
    if key is None:
        return text
    found: list[str] = []
    for line in text.splitlines():
        device, *fields = line.split()
        value = _settings(fields).get(key, NO_LIMIT)
        if value != NO_LIMIT:
            found.append(f"{device} {value}")
    return "\n".join(found)


def has_line(text: str, wanted: str) -> bool:
    """Return whether a file has a line in the style of v1. A device that is not listed has no limit, or the default."""
    values = {device: value for device, _, value in (line.strip().partition(" ") for line in text.splitlines())}
    device, _, value = wanted.strip().partition(" ")
    return values.get(device, values.get(DEFAULT, "0")).strip() == value


def has_settings(text: str, wanted: str) -> bool:
    """Return whether a file has a line `MAJ:MIN key=value ...` with these settings, among others that it may have.

    The kernel adds settings that were not written, and decimals: rpct=95 reads rpct=95.00.
    """
    device, *settings = wanted.split()
    for line in text.splitlines():
        found, *fields = line.split() or [""]
        if found == device:
            present = _settings(fields)
            return all(_is_same(present.get(key, ""), value) for key, value in _settings(settings).items())
    return False


def _settings(fields: Iterable[str]) -> dict[str, str]:
    return {key: value for key, _, value in (field.partition("=") for field in fields)}


def _is_same(present: str, wanted: str) -> bool:
    whole, _, decimals = present.partition(".")
    if whole_number(whole) is not None and not decimals.strip("0"):
        present = whole
    return present == wanted
