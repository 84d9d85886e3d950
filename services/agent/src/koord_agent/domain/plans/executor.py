"""Which kernel files to write, with which value, in which order: the pure half of the executor.

A growing value must reach the parent first, a shrinking value the child first. Two passes do both without knowing the
direction: pass 1 from the top writes what loosens (or a union), pass 2 from the bottom writes the exact value.
`koord_agent.shell.host.executor` reads the files, asks here, carries out the steps and reports which ones held.
Source: agent spec, 9.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from koordcore.values.cpuset import format_cpuset, parse_cpuset
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.kernel.cgroup_files import INT64_MAX, UNLIMITED, is_equal, parse_number
from koord_agent.domain.plans.arbiter import Winner
from koord_agent.domain.plans.plan import MERGED_BY_DEFAULT, CgroupFile, Merge

FORCE_AFTER_MS = 60_000
CACHE_LIFE_MS = 120_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One wanted value. It is compared and cached as requested, before any v2 conversion (D-14).

    Attributes:
        asked: What strategies wanted before the parent's file cut it. None if nothing was cut.
    """

    file: CgroupFile
    value: str
    merge: Merge = Merge.NONE
    cacheable: bool = True
    reason: str = "UpdateCgroups"
    asked: str | None = None


class Pass(StrEnum):
    """Which half of a leveled write a step belongs to."""

    LOOSEN = "loosen"
    """Top to bottom: what grows (and what has no order)."""
    TIGHTEN = "tighten"
    """Bottom to top: what shrinks."""


class Why(StrEnum):
    """Why an update needs no write in this cycle."""

    CACHED = "written less than the force interval ago"
    EQUAL = "file has the value already"
    MISSING = "file is not there"
    UNPARSABLE = "current value cannot be parsed"
    UNASKED = "a parent that reads lower is no reason to tighten it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One step. `final` steps carry the exact value. Others are the loosened value of pass 1."""

    update: Update
    value: str
    before: str
    final: bool
    half: Pass = Pass.LOOSEN

    def needs(self, other: CgroupFile) -> bool:
        """Return whether this step must be skipped once a step for the other file was refused.

        Below a parent that could not grow nothing grows. Above a child that could not shrink nothing shrinks. Files
        that are not above or below each other do not need each other.
        """
        mine = self.update.file
        if self.update.merge is Merge.NONE or mine.resource != other.resource:
            return False
        if self.half is Pass.LOOSEN:
            return mine.directory.startswith(other.directory + "/")
        return other.directory.startswith(mine.directory + "/")


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """Steps in order, updates that need no step, and files that enter the cache if all of their steps succeed."""

    writes: tuple[Write, ...]
    skipped: tuple[tuple[Update, Why], ...]
    settled: tuple[Update, ...]


@dataclass(slots=True)
class WriteCache:
    """Last requested value by file, and when. Owned by one executor. Times are milliseconds of the caller."""

    force_after_ms: int = FORCE_AFTER_MS
    life_ms: int = CACHE_LIFE_MS
    entries: dict[CgroupFile, tuple[str, int]] = field(default_factory=dict[CgroupFile, tuple[str, int]])

    def suppresses(self, update: Update, now_ms: int) -> bool:
        """Return whether the same value was written to this file less than the force interval ago."""
        entry = self.entries.get(update.file) if update.cacheable else None
        return entry is not None and entry[0] == update.value and 0 <= now_ms - entry[1] < self.force_after_ms

    def remember(self, update: Update, now_ms: int) -> None:
        """Remember that the file has the requested value now."""
        if update.cacheable:
            self.entries[update.file] = (update.value, now_ms)

    def forget(self, file: CgroupFile) -> None:
        """Forget a file, so that the next cycle reads it again."""
        self.entries.pop(file, None)

    def purge(self, now_ms: int) -> None:
        """Drop entries older than their life, and entries of the future after the clock was set back."""
        self.entries = {file: e for file, e in self.entries.items() if 0 <= now_ms - e[1] < self.life_ms}


def levels_of(winners: Iterable[Winner]) -> list[list[Update]]:
    """Return the winning updates, grouped by depth of directory from top to bottom, in a stable order."""
    levels: dict[int, list[Update]] = {}
    for winner in sorted(winners, key=lambda w: w.file):
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
    levels: Sequence[Sequence[Update]],
    current: Mapping[CgroupFile, str | None],
    cache: WriteCache,
    *,
    now_ms: int,
    version: int = 1,
) -> WritePlan:
    """Return the ordered writes of one leveled update.

    Args:
        levels: From top to bottom (QoS class, pod, container).
        current: Raw text of each file as read now. None or absent = not there, its update is dropped.
        cache: Only read.
        now_ms: Time in milliseconds.
        version: Of the cgroup interface whose texts `current` holds.

    Returns:
        Writes in order. Settled = updates whose file holds the exact value once all of its writes succeeded.
    """
    contents: dict[CgroupFile, str | None] = dict(current)
    writes: list[Write] = []
    skipped: list[tuple[Update, Why]] = []
    settled: list[Update] = []
    postponed: list[list[Update]] = []

    def step(update: Update, value: str, *, final: bool, half: Pass = Pass.LOOSEN) -> None:
        before = (contents[update.file] or "").strip()
        writes.append(Write(update=update, value=value, before=before, final=final, half=half))
        contents[update.file] = value

    for level in levels:
        later: list[Update] = []
        for update in level:
            now = contents.get(update.file)
            if cache.suppresses(update, now_ms):
                skipped.append((update, Why.CACHED))
            elif now is None:
                skipped.append((update, Why.MISSING))
            elif update.asked is not None and _tightens_unasked(update, update.asked, now, version):
                skipped.append((update, Why.UNASKED))
            elif update.merge is Merge.NONE:
                settled.append(update)
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
                    settled.append(update)
                    step(update, update.value, final=True)
                else:
                    later.append(update)
        postponed.append(later)

    for level in reversed(postponed):
        for update in level:
            settled.append(update)
            now = contents[update.file] or ""
            if is_equal(update.file.resource, now, update.value, version):
                skipped.append((update, Why.EQUAL))
            else:
                step(update, update.value, final=True, half=Pass.TIGHTEN)
    return WritePlan(writes=tuple(writes), skipped=tuple(skipped), settled=tuple(settled))


def _tightens_unasked(update: Update, asked: str, current: str, version: int) -> bool:
    """Return whether only the parent's reading makes an update tighter than its file is.

    In the kernel a child has never more than its parent on v1, and has no more of it on v2: one of the two readings is
    wrong, or nothing is gained. Limits of pods are not lowered on that ground.
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
    """Return the canonical union of two CPU lists, or None if either does not parse."""
    try:
        return format_cpuset(parse_cpuset(current.strip()) | parse_cpuset(wanted.strip()))
    except InvalidInput:
        return None


def _compare(update: Update, current: str, version: int) -> int | None:
    """Return a positive number if the wanted value is larger than the current one, 0 if it is equal.

    `max` and -1 are infinite. None means that a value cannot be parsed.
    """
    if update.merge is Merge.QUOTA and version == 2:
        current = current.strip().split(" ")[0]
    wanted, now = _magnitude(update.value), _magnitude(current)
    return None if wanted is None or now is None else (wanted > now) - (wanted < now)


def _magnitude(text: str) -> int | None:
    number = parse_number(text)
    return INT64_MAX if number == UNLIMITED else number
