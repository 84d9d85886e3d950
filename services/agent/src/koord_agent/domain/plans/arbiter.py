"""Pick one value for each kernel file out of the plans of all strategies.

    strategies -> plans -> arbitrate() -> winners -> executor

A *plan* is a value that one strategy proposes for one file. Rules (agent spec, 10.2): expired plans drop out. For
each file only the plans of the highest band count; the band is the priority of a plan. Equal values are one update
with several owners. Different values are resolved by the meaning of the file. Last, the CPU list or quota of a child
is cut to that of its parent, and a burst buffer to the quota of its directory. Vectors: arbitration.
"""

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from koordcore.values.cpuset import format_cpuset, parse_cpuset
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.kernel.cfs_bandwidth import BURST, PER_PERIOD, QUOTA, UNLIMITED
from koord_agent.domain.kernel.cgroup_files import parse_number
from koord_agent.domain.plans.plan import Band, CgroupFile, Plan

CPUSET = "cpuset.cpus"
LIMITS = frozenset((QUOTA, BURST, "memory.high", "memory.limit_in_bytes"))
PROTECTIONS = frozenset(("memory.min", "memory.low", "cpu.shares"))
THROTTLES = frozenset(
    f"blkio.throttle.{direction}_{unit}_device" for direction in ("read", "write") for unit in ("iops", "bps")
)
_INFINITY = 1 << 80


class Loss(StrEnum):
    """Reason why a plan was not carried out: expired, overridden by a plan of higher priority, or in conflict with one.

    A conflict is between plans of the same priority with different values.
    """

    EXPIRED = "expired"
    OVERRIDDEN = "overridden"
    """A plan of a higher band proposes a value for the file, perhaps the same one."""
    CONFLICT = "conflict"
    """Another plan of the same band won."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """The value that is written to a file, the strategies that proposed it, and their reason."""

    file: CgroupFile
    value: str
    # Names of the strategies, sorted. They proposed the same value, or their CPU lists were intersected.
    plugins: tuple[str, ...]
    band: Band
    reason: str  # Reason of one of their plans, of the newest if it won
    asked: str  # Value before it was limited by the parent's value. Equal to `value` if it was not limited.
    causes: tuple[str, ...] = ()  # Ids of the contentions that caused the plans
    # Whether the current value of the parent's file limited it, and not the value planned for the parent.
    by_reading: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Loser:
    plan: Plan
    loss: Loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Arbitration:
    """The result of arbitration: for each file the value to write, and all plans that were not carried out."""

    winners: Mapping[CgroupFile, Winner] = field(default_factory=dict[CgroupFile, Winner])
    losers: tuple[Loser, ...] = ()


def arbitrate(plans: Iterable[Plan], now_ms: int, current: Mapping[CgroupFile, str] | None = None) -> Arbitration:
    """Choose one value for every file with a plan that has not expired.

    Only the plans of the highest band count. If they have different values, it depends on the file. CPU lists are
    intersected; of limits and throttles the smallest wins; of protections (such as memory.min) the largest wins. For
    other files, and for CPU lists without a common CPU, the newest plan wins. Last, a CPU list or quota is limited by
    that of its parent directory. An unlimited quota stays unlimited: the parent limits it anyway, and a number would
    keep the parent from falling (cgroup v1). A burst buffer is limited by the quota of its directory, also one without
    a plan if its quota has one: the kernel refuses a quota below the burst buffer.

    Args:
        current: File without a plan -> its present value in the style of cgroup v1. It limits the values of child
            directories, and of the burst buffer of its own directory. A missing file limits nothing.
    """
    losers: list[Loser] = []
    by_file: dict[CgroupFile, list[Plan]] = {}
    for plan in plans:
        if plan.is_expired(now_ms):
            losers.append(Loser(plan=plan, loss=Loss.EXPIRED))
        else:
            value = normalised(plan.file.resource, plan.value)
            by_file.setdefault(plan.file, []).append(plan if value == plan.value else replace(plan, value=value))
    winners: dict[CgroupFile, Winner] = {}
    for file, of_file in by_file.items():
        band = max(plan.band for plan in of_file)
        losers.extend(Loser(plan=plan, loss=Loss.OVERRIDDEN) for plan in of_file if plan.band < band)
        winner, lost = _resolve(file, [plan for plan in of_file if plan.band == band])
        winners[file] = winner
        losers.extend(Loser(plan=plan, loss=Loss.CONFLICT) for plan in lost)
    for file in sorted(winners, key=lambda f: (f.level, f)):
        winners[file] = _cut(winners[file], winners, current or {})
    winners.update(_bursts_at_most_quotas(winners, current or {}))
    losers.sort(key=lambda loser: (loser.plan.plugin, loser.plan.file, loser.loss))
    return Arbitration(winners=winners, losers=tuple(losers))


def normalised(resource: str, value: str) -> str:
    """In a form that can be compared: CPU lists sorted, `max` as -1. Other texts stay unchanged."""
    value = value.strip()
    if value == "max":
        return str(UNLIMITED)
    if resource == CPUSET:
        try:
            return format_cpuset(parse_cpuset(value))
        except InvalidInput:
            return value
    return value


def _resolve(file: CgroupFile, plans: Sequence[Plan]) -> tuple[Winner, list[Plan]]:
    """The winner among plans of one band, and the plans that lost."""
    if len(plans) == 1:
        return _winner(file, plans, plans[0], plans[0].value), []
    newest = min(plans, key=lambda plan: (-plan.created_ms, plan.plugin))
    value = newest.value
    if file.resource == CPUSET:
        common = _intersection([plan.value for plan in plans])
        if common:
            return _winner(file, plans, newest, common), []
    elif file.resource in LIMITS:
        value = min((plan.value for plan in plans), key=lambda text: _limit(text, unlimited=UNLIMITED))
    elif file.resource in THROTTLES:
        value = min((plan.value for plan in plans), key=lambda text: _limit(text.split(" ")[-1], unlimited=0))
    elif file.resource in PROTECTIONS:
        value = max((plan.value for plan in plans), key=lambda text: _limit(text, unlimited=UNLIMITED))
    owners = [plan for plan in plans if plan.value == value]
    return _winner(file, owners, newest if newest in owners else owners[0], value), [
        plan for plan in plans if plan.value != value
    ]


def _winner(file: CgroupFile, owners: Sequence[Plan], first: Plan, value: str) -> Winner:
    return Winner(
        file=file,
        value=value,
        plugins=tuple(sorted({plan.plugin for plan in owners})),
        band=first.band,
        reason=first.reason,
        asked=value,
        causes=tuple(sorted({plan.cause for plan in owners if plan.cause})),
    )


def _intersection(lists: Sequence[str]) -> str:
    try:
        sets = [parse_cpuset(text) for text in lists]
    except InvalidInput:
        return ""
    return format_cpuset(sets[0].intersection(*sets[1:]))


def _limit(text: str, *, unlimited: int) -> int:
    number = parse_number(text)
    return _INFINITY if number is None or number == unlimited else number


def _cut(winner: Winner, winners: Mapping[CgroupFile, Winner], current: Mapping[CgroupFile, str]) -> Winner:
    file = winner.file
    if file.resource == CPUSET:
        parent = _parent_value(file, winners, current)
        value = winner.value if parent is None else _inside(winner.value, parent)
    elif file.resource == QUOTA:
        parent = _parent_value(file, winners, current)
        value = winner.value
        is_above = parent is not None and _limit(parent, unlimited=UNLIMITED) < _limit(value, unlimited=UNLIMITED)
        if parent is not None and is_above and value != str(UNLIMITED):
            value = parent
    else:
        return winner
    if value == winner.value:
        return winner
    above = winners.get(CgroupFile(posixpath.dirname(file.directory), file.resource))
    return replace(winner, value=value, by_reading=above is None or above.by_reading)


def _bursts_at_most_quotas(
    winners: Mapping[CgroupFile, Winner], current: Mapping[CgroupFile, str]
) -> dict[CgroupFile, Winner]:
    """The burst buffers above the quota of their directory, with the quota as their value."""
    found: dict[CgroupFile, Winner] = {}
    for winner in winners.values():
        if winner.file.resource not in PER_PERIOD:
            continue
        burst, quota = (CgroupFile(winner.file.directory, name) for name in (BURST, QUOTA))
        wanted = winners[burst].value if burst in winners else current.get(burst)
        highest = winners[quota].value if quota in winners else current.get(quota)
        if wanted is None or highest is None:
            continue
        if _limit(wanted, unlimited=UNLIMITED) > _limit(highest, unlimited=UNLIMITED):
            of_burst = winners.get(burst, winner)
            found[burst] = replace(of_burst, file=burst, value=highest, asked=wanted, by_reading=False)
    return found


def _parent_value(
    file: CgroupFile, winners: Mapping[CgroupFile, Winner], current: Mapping[CgroupFile, str]
) -> str | None:
    """The value that the parent directory has after this cycle; None if unknown."""
    above = posixpath.dirname(file.directory)
    if not above:
        return None
    parent = CgroupFile(above, file.resource)
    if parent in winners:
        return winners[parent].value
    text = current.get(parent)
    return None if text is None else normalised(file.resource, text)


def _inside(value: str, parent: str) -> str:
    try:
        own, outer = parse_cpuset(value), parse_cpuset(parent)
    except InvalidInput:
        return value
    if not outer or own <= outer:
        return value
    return format_cpuset(own & outer or outer)
