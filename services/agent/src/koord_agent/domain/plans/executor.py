"""Decide which kernel files to write, with which values and in which order.

A growing value must reach the parent first, a shrinking value the child first. Two passes do both without knowing the
direction: pass 1 from the top writes what loosens (or a union), pass 2 from the bottom writes the exact value. In one
directory, a quota rises before its burst buffer, and falls after it.
`koord_agent.shell.host.executor` reads the files, carries out the steps, and reports which writes succeeded.

A value is compared with what its file reads in this cycle, never with what was written last: the kubelet, the container
runtime and systemd write the same files. Source: agent spec, 9, without its cache; decision 0051.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from koordcore.values.cpuset import format_cpuset, parse_cpuset
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.kernel.cfs_bandwidth import BURST, PER_PERIOD, UNLIMITED, per_100_ms, split_period
from koord_agent.domain.kernel.cgroup_files import INT64_MAX, is_equal, parse_number
from koord_agent.domain.plans.arbiter import Winner
from koord_agent.domain.plans.plan import MERGED_BY_DEFAULT, CgroupFile, Merge


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A value to write to a file. It is in the style of cgroup v1, also for comparison (D-14)."""

    file: CgroupFile
    value: str
    merge: Merge = Merge.NONE  # How the first pass loosens it
    reason: str = "UpdateCgroups"
    # Proposed value before the current value of the parent's file limited it. None if that did not limit it, also if a
    # value planned for the parent did.
    asked: str | None = None


class Pass(StrEnum):
    """The pass of a two-pass write: LOOSEN from the top directory down, then TIGHTEN from the bottom up."""

    LOOSEN = "loosen"
    """First pass, top to bottom: values that grow, and values without order."""
    TIGHTEN = "tighten"
    """Second pass, bottom to top: values that shrink."""


class Why(StrEnum):
    """Reason why an update needs no write in this cycle, such as: the file has the value already."""

    EQUAL = "file has the value already"
    MISSING = "file is not there"
    UNPARSABLE = "current value cannot be parsed"
    UNASKED = "a parent that reads lower is no reason to tighten it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    update: Update
    value: str
    before: str  # Present text of the file
    # Whether the value is the exact value of the update. If False, it is the looser value of the first pass.
    final: bool
    half: Pass = Pass.LOOSEN

    def needs(self, other: CgroupFile) -> bool:
        """Return whether this write must be skipped if the write to the other file was refused.

        A child must not grow if its parent could not grow. A parent must not shrink if its child could not shrink.
        Other files are independent.
        """
        mine = self.update.file
        if self.update.merge is Merge.NONE or mine.resource != other.resource:
            return False
        if self.half is Pass.LOOSEN:
            return mine.directory.startswith(other.directory + "/")
        return other.directory.startswith(mine.directory + "/")


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """The writes of one cycle in order, and the updates that need none."""

    writes: tuple[Write, ...]
    skipped: tuple[tuple[Update, Why], ...]  # Updates that need no write, with the reason


def levels_of(winners: Iterable[Winner]) -> list[list[Update]]:
    """Grouped by depth of their directory, from top to bottom."""
    levels: dict[int, list[Update]] = {}
    for winner in sorted(winners, key=lambda w: (w.file.directory, w.file.resource == BURST, w.file)):
        merge = MERGED_BY_DEFAULT.get(winner.file.resource, Merge.NONE)
        update = Update(
            file=winner.file,
            value=winner.value,
            merge=merge,
            reason=winner.reason or "UpdateCgroups",
            asked=winner.asked if winner.by_reading else None,
        )
        levels.setdefault(winner.file.level, []).append(update)
    return [levels[level] for level in sorted(levels)]


def plan_writes(
    levels: Sequence[Sequence[Update]], current: Mapping[CgroupFile, str | None], *, version: int = 1
) -> WritePlan:
    """Decide which files have to be written, with which values and in which order.

    Args:
        levels: Updates by level from top to bottom (QoS class, pod, container).
        current: File -> its present text. If it is None or absent, the file does not exist and its update is dropped.
        version: Version of the cgroup interface of the texts in `current`.
    """
    contents: dict[CgroupFile, str | None] = dict(current)
    writes: list[Write] = []
    skipped: list[tuple[Update, Why]] = []
    postponed: list[list[Update]] = []

    def step(update: Update, value: str, *, final: bool, half: Pass = Pass.LOOSEN) -> None:
        before = (contents[update.file] or "").strip()
        writes.append(Write(update=update, value=value, before=before, final=final, half=half))
        contents[update.file] = value

    for level in levels:
        later: list[Update] = []
        for update in level:
            now = contents.get(update.file)
            if now is None:
                skipped.append((update, Why.MISSING))
            elif update.asked is not None and _tightens_unasked(update, update.asked, now, version):
                skipped.append((update, Why.UNASKED))
            elif update.merge is Merge.NONE:
                if is_equal(update.file.resource, now, update.value, version):
                    skipped.append((update, Why.EQUAL))
                else:
                    step(update, update.value, final=True)
            elif update.merge is Merge.CPUSET:
                union = _union(now, update.value)
                if union is None:
                    skipped.append((update, Why.UNPARSABLE))
                    continue
                later.append(update)
                if not is_equal(update.file.resource, now, union, version):
                    step(update, union, final=False)
            else:
                order = _compare(update, now, version)
                if order is None:
                    skipped.append((update, Why.UNPARSABLE))
                elif order > 0:
                    step(update, update.value, final=True)
                else:
                    later.append(update)
        postponed.append(later)

    for level in reversed(postponed):
        for update in sorted(level, key=lambda one: one.file.resource != BURST):
            now = contents[update.file] or ""
            if is_equal(update.file.resource, now, update.value, version):
                skipped.append((update, Why.EQUAL))
            else:
                step(update, update.value, final=True, half=Pass.TIGHTEN)
    return WritePlan(writes=tuple(writes), skipped=tuple(skipped))


def _tightens_unasked(update: Update, asked: str, current: str, version: int) -> bool:
    """Return whether the update lowers a limit only because of the current value of the parent's file.

    In the kernel, a child cannot use more than its parent anyway. So such an update is useless or based on a wrong
    reading, and is not written.
    """
    if update.merge is Merge.CPUSET:
        try:
            has, cut, wanted = (parse_cpuset(text.strip()) for text in (current, update.value, asked))
        except InvalidInput:
            return False
        return has <= wanted and not has <= cut
    order, of_asked = _compare(update, current, version), _compare(replace(update, value=asked), current, version)
    return order is not None and of_asked is not None and order < 0 <= of_asked


def _union(current: str, wanted: str) -> str | None:
    """None if either CPU list does not parse."""
    try:
        return format_cpuset(parse_cpuset(current.strip()) | parse_cpuset(wanted.strip()))
    except InvalidInput:
        return None


def _compare(update: Update, current: str, version: int) -> int | None:
    """Positive if the wanted value is larger; 0 if equal. `max` and -1 are infinite. None if a value is invalid."""
    if update.file.resource in PER_PERIOD:
        if is_equal(update.file.resource, current, update.value, version):
            return 0
        current, period_us = split_period(current)
        now = _magnitude(current)
        now = None if now is None else per_100_ms(now, period_us)
    else:
        now = _magnitude(current)
    wanted = _magnitude(update.value)
    return None if wanted is None or now is None else (wanted > now) - (wanted < now)


def _magnitude(text: str) -> int | None:
    number = parse_number(text)
    return INT64_MAX if number == UNLIMITED else number
