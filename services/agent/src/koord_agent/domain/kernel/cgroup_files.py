"""The table of kernel files that the agent reads and writes.

It defines names on cgroup v1 and v2, and the conversion, validity and equality of values.

All code but the hosts uses v1 file names and v1-style values (`-1` = unlimited). `domain.plans.executor`
plans with these values; the hosts in `koord_agent.shell.host` convert them last.

Source: agent spec, 3.4.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from koordcore.values.cpuset import is_same_cpuset, parse_cpuset
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.kernel.cfs_bandwidth import (
    BURST,
    CFS_PERIOD_US,
    MIN_QUOTA_US,
    PER_PERIOD,
    QUOTA,
    UNLIMITED,
    in_period,
    per_100_ms,
    split_period,
)
from koord_agent.domain.kernel.counters import parse_flat
from koord_agent.domain.kernel.cpu_weight import (
    MAX_SHARES,
    MIN_SHARES,
    WeightLine,
    shares_to_weight,
    weight_to_shares,
    weights_of,
)
from koord_agent.domain.kernel.io_files import (
    IO_MAX,
    IO_WEIGHT,
    KEY_OF_LIMIT,
    has_line,
    has_settings,
    v1_lines,
    v2_line,
)

INT64_MAX = 9223372036854775807
V1_UNLIMITED_MEMORY = 0x7FFFFFFFFFFFF000
SHARES, IDLE = "cpu.shares", "cpu.idle"
CPU_MAX_FIELDS = 2
MAX_DIGITS = 20
"""Largest number of digits of a 64-bit number; longer texts are not numbers."""


class Unsupported(LookupError):
    """Raised if this cgroup version does not have a file, or if the table does not contain it."""


class Form(StrEnum):
    """Form of a kernel file's text, by which it is compared and converted between cgroup v1 and v2."""

    NUMBER = "number"
    CPUSET = "cpuset"
    QUOTA = "quota"
    SHARES = "shares"
    MEMORY_LIMIT = "memory_limit"
    DEVICE = "device"
    DEVICE_TEXT = "device_text"
    CLASSID = "classid"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Resource:
    """One kernel file of the table, by its cgroup v1 name."""

    name: str  # Name on cgroup v1
    hierarchy: str | None  # Hierarchy on cgroup v1; None if v1 does not have the file
    v2_file: str | None  # Name on cgroup v2; None if v2 does not have the file
    form: Form = Form.TEXT  # How its text is compared and converted
    low: int | None = None  # Smallest valid number; None without a bound
    high: int | None = None  # Largest valid number; None without a bound
    v2_high: int | None = None  # Largest valid number on v2, if it is another one there
    v2_read_file: str | None = None  # Name of another file that is read on v2, or None

    def file(self, version: int, *, reading: bool = False) -> str | None:
        """None if this cgroup version does not have the file. For some, cgroup v2 has another file for `reading`."""
        if version == 1:
            return self.name if self.hierarchy is not None else None
        return self.v2_read_file if reading and self.v2_read_file else self.v2_file


def _same(name: str, hierarchy: str, form: Form, low: int | None = None, high: int | None = None) -> Resource:
    return Resource(name, hierarchy, name, form, low, high)


def _v1_only(name: str, form: Form, low: int | None = None, high: int | None = None) -> Resource:
    return Resource(name, "memory", None, form, low, high)


RESOURCES = {
    resource.name: resource
    for resource in (
        Resource(SHARES, "cpu", "cpu.weight", Form.SHARES, MIN_SHARES, MAX_SHARES),
        Resource(QUOTA, "cpu", "cpu.max", Form.QUOTA),
        Resource("cpu.cfs_period_us", "cpu", "cpu.max", Form.NUMBER),
        Resource(BURST, "cpu", "cpu.max.burst", Form.NUMBER, 0, 100_000_000, v2_high=INT64_MAX),
        _same("cpu.bvt_warp_ns", "cpu", Form.NUMBER, -1, 2),
        _same(IDLE, "cpu", Form.NUMBER, 0, 1),
        _same("cpu.stat", "cpu", Form.TEXT),
        Resource("tasks", "cpu", "cgroup.threads"),
        _same("cgroup.procs", "cpu", Form.TEXT),
        Resource("cpuset.cpus", "cpuset", "cpuset.cpus", Form.CPUSET, v2_read_file="cpuset.cpus.effective"),
        Resource("cpuacct.usage", "cpuacct", "cpu.stat", Form.NUMBER),
        _same("cpu.pressure", "cpuacct", Form.TEXT),
        _same("memory.pressure", "cpuacct", Form.TEXT),
        _same("io.pressure", "cpuacct", Form.TEXT),
        Resource("memory.limit_in_bytes", "memory", "memory.max", Form.MEMORY_LIMIT),
        Resource("memory.usage_in_bytes", "memory", "memory.current", Form.NUMBER),
        _same("memory.stat", "memory", Form.TEXT),
        Resource("memory.oom_control", "memory", "memory.events"),
        _same("memory.numa_stat", "memory", Form.TEXT),
        _same("memory.min", "memory", Form.NUMBER, 0, INT64_MAX),
        _same("memory.low", "memory", Form.NUMBER, 0, INT64_MAX),
        _same("memory.high", "memory", Form.NUMBER, 0, INT64_MAX),
        _same("memory.wmark_ratio", "memory", Form.NUMBER, 0, 100),
        _same("memory.wmark_scale_factor", "memory", Form.NUMBER, 1, 1000),
        _same("memory.wmark_min_adj", "memory", Form.NUMBER, -25, 50),
        _same("memory.priority", "memory", Form.NUMBER, 0, 12),
        _same("memory.use_priority_oom", "memory", Form.NUMBER, 0, 1),
        _same("memory.oom.group", "memory", Form.NUMBER, 0, 1),
        Resource("memory.pagecache_limit.enable", None, "memory.pagecache_limit.enable", Form.NUMBER, 0, 1),
        Resource("memory.pagecache_limit.size", None, "memory.pagecache_limit.size", Form.NUMBER, 0, INT64_MAX),
        Resource("memory.pagecache_limit.sync", None, "memory.pagecache_limit.sync", Form.NUMBER, 0, 1),
        _v1_only("memory.idle_page_stats", Form.TEXT),
        *(Resource(name, "blkio", IO_MAX, Form.DEVICE, 0, INT64_MAX) for name in KEY_OF_LIMIT),
        Resource("blkio.cost.weight", "blkio", IO_WEIGHT, Form.DEVICE, 1, 100),
        Resource("blkio.cost.qos", "blkio", "io.cost.qos", Form.DEVICE_TEXT),
        Resource("blkio.cost.model", "blkio", "io.cost.model", Form.DEVICE_TEXT),
        _same("net_cls.classid", "net_cls", Form.CLASSID),
    )
}

SYSTEM_FILES = {
    "min_free_kbytes": (10_240, 10_485_760),
    "watermark_scale_factor": (10, 400),
    "memcg_reaper/reap_background": (0, 1),
    "reap_background": (0, 1),
    "sched_group_identity_enabled": (0, 1),
}
"""Node-wide files and the ranges of their values (agent spec, 17)."""


def resource(name: str) -> Resource:
    """Raises Unsupported: The table does not have the v1 name."""
    if name not in RESOURCES:
        raise Unsupported(f"resource {name}: not in the table")
    return RESOURCES[name]


def file_path(root: str, name: str, directory: str, version: int, *, reading: bool = False) -> str:
    """Return the absolute path of a kernel file: root/hierarchy/directory/file on v1, root/directory/file on v2.

    Raises:
        Unsupported: This cgroup version does not have the file.
    """
    hierarchy, file = _place(name, version, reading)
    return "/".join(part for part in (root, hierarchy, directory, file) if part)


@lru_cache(maxsize=512)
def _place(name: str, version: int, reading: bool) -> tuple[str, str]:
    """Hierarchy ("" on v2) and file."""
    row = resource(name)
    file = row.file(version, reading=reading)
    if file is None:
        raise Unsupported(f"resource {name}: not on cgroup v{version}")
    return (row.hierarchy or "") if version == 1 else "", file


def validate(name: str, value: str, version: int = 1) -> None:
    """Check that a value in the style of cgroup v1 may be written to a file, which has this name on cgroup v1.

    `max` counts as the largest int64. CPU lists must parse. Any text is valid for a file without a rule.

    Raises:
        InvalidInput: The value is invalid. The message has file, rule and value.
        Unsupported: The table does not have the file.
    """
    if name in SYSTEM_FILES:
        _in_range(name, value, *SYSTEM_FILES[name])
        return
    row = resource(name)
    match row.form:
        case Form.CPUSET:
            try:
                parse_cpuset(value.strip())
            except InvalidInput as error:
                raise error.at(name) from error
        case Form.DEVICE:
            fields = value.split()
            major, colon, minor = fields[0].partition(":") if fields else ("", "", "")
            if len(fields) != 2 or not colon or not major.isdecimal() or not minor.isdecimal():
                raise InvalidInput("'MAJ:MIN value'", value, name)
            _in_range(name, fields[1], row.low, row.high)
        case Form.CLASSID:
            digits = value.removeprefix("0x")
            hexadecimal = (
                digits != value and 0 < len(digits) <= 8 and all(c in "0123456789abcdefABCDEF" for c in digits)
            )
            if not hexadecimal and not (value.isascii() and value.isdecimal()):
                raise InvalidInput("0x and up to 8 hex digits, or decimal", value, name)
        case Form.QUOTA | Form.MEMORY_LIMIT:
            _in_range(name, value, UNLIMITED, None)
        case Form.SHARES | Form.NUMBER if row.low is not None:
            _in_range(name, value, row.low, row.v2_high if version == 2 and row.v2_high else row.high)
        case _:
            pass


def is_in_force(name: str, value: str) -> bool:
    """Return whether a value (in the style of cgroup v1) that was read is one that the kernel accepts and enforces.

    It is False only for a CPU quota below one millisecond or without a number. It is True for all other files.
    """
    number = parse_number(value) if name == QUOTA else UNLIMITED
    return number is not None and (number == UNLIMITED or number >= MIN_QUOTA_US)


def _in_range(name: str, value: str, low: int | None, high: int | None) -> None:
    number = parse_number(value)
    if number is None:
        raise InvalidInput("an integer or max", value, name)
    if (low is not None and number < low) or (high is not None and number > high):
        raise InvalidInput(f"{low} or more" if high is None else f"{low}..{high}", value, name)


def parse_number(text: str) -> int | None:
    """The largest int64 for `max`. None for any text that is not an integer."""
    text = text.strip()
    if text == "max":
        return INT64_MAX
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) <= MAX_DIGITS else None


def to_file_text(name: str, value: str, version: int, line: WeightLine = WeightLine.QUADRATIC) -> str:
    """Convert a value in the style of cgroup v1 to the text to write on this cgroup version.

    On v2, shares become a weight by the `line` of the runtime, an unlimited quota or memory limit becomes `max`, and a
    quota is written alone (the period stays).

    Raises:
        InvalidInput: The value is invalid.
        Unsupported: This cgroup version does not have the file.
    """
    row = resource(name)
    if row.file(version) is None:
        raise Unsupported(f"resource {name}: not on cgroup v{version}")
    validate(name, value, version)
    if version == 1:
        return value
    match row.form:
        case Form.SHARES:
            return str(shares_to_weight(parse_number(value) or 0, line))
        case Form.DEVICE:
            return v2_line(name, value)
        case Form.QUOTA | Form.MEMORY_LIMIT if parse_number(value) == UNLIMITED:
            return "max"
        case _:
            return value


def from_file_text(name: str, text: str, version: int) -> str:
    """Convert the text of a file on this cgroup version to a value in the style of cgroup v1.

    Raises:
        InvalidInput: The text does not have the format of this file.
        Unsupported: This cgroup version does not have the file.
    """
    row = resource(name)
    if row.file(version, reading=True) is None:
        raise Unsupported(f"resource {name}: not on cgroup v{version}")
    text = text.strip()
    if version == 2 and name == QUOTA and len(text.split()) != CPU_MAX_FIELDS:
        raise InvalidInput("a quota and a period", text, "cpu.max")
    if name in PER_PERIOD:
        number, period_us = split_period(text)
        return str(UNLIMITED if number == "max" else per_100_ms(_number(name, number), period_us))
    if version == 2:
        match name:
            case "cpu.shares":
                return str(weight_to_shares(_number(name, text)))
            case "cpu.cfs_period_us":
                fields = text.split()
                if len(fields) != CPU_MAX_FIELDS:
                    raise InvalidInput("a quota and a period", text, "cpu.max")
                return str(_number(name, fields[1]))
            case "cpuacct.usage":
                entries = parse_flat(text)
                if "usage_usec" not in entries:
                    raise InvalidInput("lines with usage_usec", text, "cpu.stat")
                return str(entries["usage_usec"] * 1000)
            case _:
                pass
    match row.form:
        case Form.DEVICE if version == 2:
            return v1_lines(name, text)
        case Form.MEMORY_LIMIT:
            limit = _number(name, text)
            return str(UNLIMITED) if limit >= V1_UNLIMITED_MEMORY else str(limit)
        case Form.NUMBER | Form.SHARES:
            return str(_number(name, text))
        case _:
            return text


def _number(name: str, text: str) -> int:
    number = parse_number(text)
    if number is None:
        raise InvalidInput("an integer or max", text, name)
    return number


def is_equal(name: str, current: str, value: str, version: int) -> bool:
    """Return whether a file with the text `current` already has a value, which is in the style of cgroup v1.

    CPU lists are compared as sets, devices line by line, and numbers by value; `max`, the largest int64 and -1 are
    equal. A quota or burst is compared per 100 ms, whatever the period in the text is. On v2, shares are compared as
    weights, by the line of any runtime.
    """
    row = resource(name)
    current, value = current.strip(), value.strip()
    if name in PER_PERIOD:
        current, period_us = split_period(current)
        wanted = parse_number(value)
        value = value if wanted is None or wanted == INT64_MAX else str(in_period(name, wanted, period_us))
    match row.form:
        case Form.CPUSET:
            return is_same_cpuset(current, value)
        case Form.DEVICE:
            return has_line(v1_lines(name, current) if version == 2 else current, value)
        case Form.DEVICE_TEXT:
            return has_settings(current, value)
        case Form.SHARES if version == 2:
            wanted = parse_number(value)
            if wanted is None or not MIN_SHARES <= wanted <= MAX_SHARES:
                return False
            return current in map(str, weights_of(wanted))
        case Form.CLASSID:
            return _any_base(current) == _any_base(value)
        case _:
            pass
    if current == value:
        return True
    left, right = _comparable(row, current), _comparable(row, value)
    return left is not None and left == right


def _comparable(row: Resource, text: str) -> int | None:
    number = parse_number(text)
    if number == UNLIMITED and row.low != UNLIMITED and (row.low or 0) >= 0:
        return INT64_MAX
    if number is not None and row.form is Form.MEMORY_LIMIT and number >= V1_UNLIMITED_MEMORY:
        return INT64_MAX
    return number


def _any_base(text: str) -> int | str:
    try:
        return int(text, 0)
    except ValueError:
        return text


def milli_to_shares(cpu_milli: int) -> int:
    """Return the cpu.shares of a request: milli * 1024 / 1000 within 2..262144. 2 for zero or less."""
    return min(max(cpu_milli * 1024 // 1000, MIN_SHARES), MAX_SHARES) if cpu_milli > 0 else MIN_SHARES


def milli_to_quota_us(cpu_milli: int) -> int:
    """Return the cpu.cfs_quota_us of a limit: milli * 100000 / 1000, at least 1000. -1 (unlimited) for zero or less."""
    return max(cpu_milli * CFS_PERIOD_US // 1000, MIN_QUOTA_US) if cpu_milli > 0 else UNLIMITED
