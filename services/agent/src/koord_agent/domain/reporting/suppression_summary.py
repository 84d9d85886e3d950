"""Decide when a change of the best-effort quota becomes a fact, so that a busy node does not flood the log.

The quota follows the load in small steps every cycle. The audit log contains each step. The event log gets the first
and the last change, every significant change, and a summary of small changes.
"""

from dataclasses import dataclass, replace

from koordcore.events.nodestate import BeCpuReleased, BeCpuSuppressed
from koordcore.protocol.resource_names import cfs_quota_text

from koord_agent.domain.plans.arbiter import Winner
from koord_agent.domain.strategies.cpu_suppress import Decision, SuppressTerms

SIGNIFICANT_PERCENT = 10
"""Size of a significant change since the last fact, in percent of the node's capacity."""
SAY_AFTER_MS = 600_000
QUOTA_US_PER_MILLI = 100
UNLIMITED = -1


def quota_changed(decision: Decision) -> BeCpuSuppressed | BeCpuReleased | None:
    """Return the fact about a written CPU quota of the best-effort class.

    Return None if the decision did not change the quota. Call it only after the executor has reported the write.
    """
    old, new = decision.old_quota_us, decision.new_quota_us
    if old is None or new is None or old == new:
        return None
    if new == UNLIMITED:
        return BeCpuReleased(old_quota_us=old, reason=decision.reason)
    terms = _terms(decision.terms) if decision.terms is not None else {}
    return BeCpuSuppressed(old_quota_us=old, new_quota_us=new, terms=terms, reason=decision.reason)


def _terms(terms: SuppressTerms) -> dict[str, int]:
    named = {
        "capacity": terms.capacity_milli,
        "threshold_percent": terms.threshold_percent,
        "pod_non_be_used": terms.pod_non_be_milli,
        "host_non_be_used": terms.host_non_be_milli,
        "system_used": terms.system_milli,
        "reserved": terms.reserved_milli,
        "budget": terms.budget_milli,
    }
    return named if terms.min_percent is None else {**named, "min_percent": terms.min_percent}


def in_force(decision: Decision, quota_us: int, winner: Winner | None) -> Decision:
    """Return the decision with the quota that was really written in place of the decided one.

    They differ if the plan of another strategy won (`winner`, None if unknown), or if the quota was limited.
    """
    if quota_us == decision.new_quota_us:
        return decision
    whose = "" if winner is None else ", ".join(winner.plugins)
    reason = f"{decision.reason}; {whose or 'another'} holds it at {cfs_quota_text(quota_us)}"
    return replace(decision, new_quota_us=quota_us, reason=reason)


@dataclass(slots=True)
class SuppressionSummary:
    """The last fact about the CPU quota of best effort, and the changes since then."""

    said_us: int | None = None  # Quota in the last fact; None if there was no fact since the agent started
    said_ms: int = 0
    said_causes: tuple[str, ...] = ()  # Contentions that the last fact named
    writes: int = 0
    lowest_us: int = 0
    highest_us: int = 0
    _last: Decision | None = None
    _causes: tuple[str, ...] = ()

    def written(
        self,
        decision: Decision,
        now_ms: int,
        capacity_milli: int,
        every_ms: int = SAY_AFTER_MS,
        causes: tuple[str, ...] = (),
    ) -> BeCpuSuppressed | BeCpuReleased | None:
        """Add a decision whose quota was written, and return the fact about it; None if no fact is due yet.

        Args:
            every_ms: Longest time in milliseconds until a small change is reported.
            causes: Contentions that lowered the budget. If they changed, a fact is due at once.
        """
        self._causes = causes
        fact = quota_changed(decision)
        new = decision.new_quota_us
        if fact is None or new is None:
            return None
        if isinstance(fact, BeCpuReleased):
            return self._say_released(fact, now_ms)
        self.writes += 1
        self.lowest_us = new if self.writes == 1 else min(self.lowest_us, new)
        self.highest_us = new if self.writes == 1 else max(self.highest_us, new)
        self._last = decision
        significant_us = capacity_milli * QUOTA_US_PER_MILLI * SIGNIFICANT_PERCENT // 100
        far = self.said_us in (None, UNLIMITED) or abs(new - (self.said_us or 0)) >= significant_us
        if far or causes != self.said_causes:
            return self._say(decision, now_ms)
        return self.due(now_ms, every_ms)

    def due(self, now_ms: int, every_ms: int = SAY_AFTER_MS) -> BeCpuSuppressed | None:
        """The fact about small changes if `every_ms` have passed since the last fact; otherwise None."""
        if self._last is None or 0 <= now_ms - self.said_ms < every_ms:
            return None
        return self._say(self._last, now_ms)

    def _say(self, decision: Decision, now_ms: int) -> BeCpuSuppressed | None:
        fact = quota_changed(decision)
        if not isinstance(fact, BeCpuSuppressed):
            return None
        old = fact.old_quota_us if self.said_us is None else self.said_us
        said = BeCpuSuppressed(
            old_quota_us=old,
            new_quota_us=fact.new_quota_us,
            terms=fact.terms,
            reason=fact.reason,
            writes=self.writes,
            lowest_us=self.lowest_us if self.writes > 1 else 0,
            highest_us=self.highest_us if self.writes > 1 else 0,
            causes=list(self._causes),
        )
        self.said_causes = self._causes
        self._reset(fact.new_quota_us, now_ms)
        return said

    def _say_released(self, fact: BeCpuReleased, now_ms: int) -> BeCpuReleased:
        self._reset(UNLIMITED, now_ms)
        return fact

    def _reset(self, said_us: int, now_ms: int) -> None:
        self.said_us, self.said_ms = said_us, now_ms
        self.writes, self.lowest_us, self.highest_us, self._last = 0, 0, 0, None
