"""Summarise writes of kernel files in one fact: per file the first old value and the last new value.

A *knob* is a value of the kernel that the agent sets, such as a cgroup file. The audit log has every write. Quotas of
the best-effort root have facts of their own (`suppression_summary`). A plan that loses a conflict is reported with
the file, once while it keeps losing.

Source: agent spec, 10.2 (7), 19.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from koordcore.events.nodestate import KnobChange, KnobsChanged, LostPlan

from koord_agent.domain.plans.arbiter import Loser, Loss, Winner
from koord_agent.domain.plans.plan import CgroupFile

SAY_AFTER_MS = 600_000
MOST_CHANGES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobWrite:
    file: CgroupFile
    before: str
    after: str
    winner: Winner | None = None  # The plan that was written, with its strategies; None for a write without a plan


@dataclass(slots=True)
class _Gathered:
    old: str
    new: str
    writes: int = 0
    strategies: tuple[str, ...] = ()
    reason: str = ""
    causes: set[str] = field(default_factory=set[str])


@dataclass(slots=True)
class KnobSummary:
    """The writes of kernel files on one node since the last fact about them."""

    silent: frozenset[CgroupFile] = frozenset()  # Files that have facts of their own and are left out here
    said_ms: int | None = None  # Time of the last fact in milliseconds; None before the first cycle
    writes: int = 0
    failed: int = 0  # Number of writes that the kernel refused
    _knobs: dict[CgroupFile, _Gathered] = field(default_factory=dict[CgroupFile, _Gathered])
    _lost: dict[CgroupFile, dict[str, LostPlan]] = field(default_factory=dict[CgroupFile, dict[str, LostPlan]])
    _losing: dict[tuple[CgroupFile, str], str] = field(default_factory=dict[tuple[CgroupFile, str], str])

    def add(self, written: Iterable[KnobWrite], *, failed: int) -> None:
        """`failed` is the number of writes that the kernel refused."""
        self.failed += failed
        for write in written:
            self.writes += 1
            if write.file in self.silent:
                continue
            knob = self._knobs.setdefault(write.file, _Gathered(old=write.before, new=write.after))
            knob.new = write.after
            knob.writes += 1
            if write.winner is not None:
                knob.strategies, knob.reason = write.winner.plugins, write.winner.reason
                knob.causes.update(write.winner.causes)

    def lost(self, losers: Iterable[Loser], winners: Mapping[CgroupFile, Winner]) -> tuple[Loser, ...]:
        """Count the plans of a cycle that lost against another plan, and return those that lose since this cycle.

        Expired plans do not count.
        """
        losing: dict[tuple[CgroupFile, str], str] = {}
        news: list[Loser] = []
        for loser in losers:
            plan = loser.plan
            if loser.loss is Loss.EXPIRED or plan.file not in winners:
                continue
            losing[plan.file, plan.plugin] = loser.loss
            if self._losing.get((plan.file, plan.plugin)) != loser.loss:
                news.append(loser)
                lost = LostPlan(strategy=plan.plugin, value=plan.value, loss=loser.loss)
                self._lost.setdefault(plan.file, {})[plan.plugin] = lost
        self._losing = losing
        return tuple(news)

    def due(self, now_ms: int, every_ms: int = SAY_AFTER_MS) -> KnobsChanged | None:
        """The fact of `said` if `every_ms` have passed since the last one. The time begins with the first call."""
        if self.said_ms is None:
            self.said_ms = now_ms
        if 0 <= now_ms - self.said_ms < every_ms:
            return None
        return self.said(now_ms)

    def said(self, now_ms: int) -> KnobsChanged | None:
        """Return the fact `KnobsChanged` about all writes, refused writes and lost plans since the last fact.

        A new summary begins then. Return None if there were none. Writes of `silent` files alone give no fact.
        """
        if not self._knobs and not self._lost and not self.failed:
            return None
        files = sorted(
            self._knobs.keys() | self._lost.keys(),
            key=lambda file: (-(self._knobs[file].writes if file in self._knobs else 0), file),
        )
        seconds = (now_ms - (self.said_ms or now_ms)) / 1000
        fact = KnobsChanged(
            seconds=seconds,
            writes=self.writes,
            changes=[self._change(file) for file in files[:MOST_CHANGES]],
            failed=self.failed,
            omitted=max(len(files) - MOST_CHANGES, 0),
        )
        self.said_ms, self.writes, self.failed = now_ms, 0, 0
        self._knobs.clear()
        self._lost.clear()
        return fact

    def _change(self, file: CgroupFile) -> KnobChange:
        knob = self._knobs.get(file, _Gathered(old="", new=""))
        return KnobChange(
            knob=file.key,
            old=knob.old,
            new=knob.new,
            writes=knob.writes,
            strategies=list(knob.strategies),
            reason=knob.reason,
            causes=sorted(knob.causes),
            lost=[lost for _, lost in sorted(self._lost.get(file, {}).items())],
        )
