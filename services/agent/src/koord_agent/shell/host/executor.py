"""Carries out plans on a host: writes only what changed, in the planned order, and looks whether it held.

The order comes from `koord_agent.domain.executor`. One executor per host; calls must not overlap.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from koordcore.values.invalid import InvalidInput

from koord_agent.domain.cgroup_files import Unsupported, is_equal, validate
from koord_agent.domain.executor import Update, Why, Write, WriteCache, levels_of, plan_writes
from koord_agent.domain.plan import CgroupFile, OutsideTree, Plan, require_inside
from koord_agent.shell.host.host import Host, Vanished, WriteFailed

PURGE_EVERY_MS = 60_000


class Result(StrEnum):
    """What became of one wanted value."""

    WRITTEN = "written"
    UNCHANGED = "unchanged"
    IGNORED = "ignored"
    """not there or not supported: no error, tried again next round"""
    REFUSED = "refused"
    """outside the agent's trees, or not a valid value: nothing was touched"""
    FAILED = "failed"
    """the kernel did not take it; tried again next round"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One wanted value with its result.

    before    text of the file before; None = not read
    after     text read back after the write; None = nothing was written, or the file vanished
    held      whether the text read back says the wanted value
    """

    file: CgroupFile
    value: str
    result: Result
    before: str | None = None
    after: str | None = None
    held: bool = True
    detail: str = ""


class CgroupExecutor:
    """The executor of one host.

    trees     directories (relative) that may be written, with everything below them; see `writable_trees`
    """

    def __init__(self, host: Host, *, trees: Sequence[str], cache: WriteCache | None = None) -> None:
        self._host = host
        self._trees = tuple(trees)
        self._cache = cache if cache is not None else WriteCache()
        self._purged_ms = 0

    def apply(self, plans: Iterable[Plan], now_ms: int) -> tuple[Outcome, ...]:
        """Carry plans out; one outcome per file, never an exception for what a kernel or a plan may do wrong.

        Expired plans are dropped silently: their strategy has stopped asking for them.
        """
        return self.apply_levels(levels_of(plan for plan in plans if not plan.is_expired(now_ms)), now_ms)

    def apply_levels(self, levels: Sequence[Sequence[Update]], now_ms: int) -> tuple[Outcome, ...]:
        """As `apply`, for updates that are grouped into levels from top to bottom already."""
        outcomes: dict[CgroupFile, Outcome] = {}
        allowed = [[update for update in level if self._is_allowed(update, outcomes)] for level in levels]
        if not any(allowed):
            return tuple(outcomes.values())
        current = {
            update.file: self._host.read(update.file)
            for level in allowed
            for update in level
            if not self._cache.suppresses(update, now_ms)
        }
        plan = plan_writes(allowed, current, self._cache, now_ms=now_ms, version=self._host.cgroup_version)
        for update, why in plan.skipped:
            result = Result.IGNORED if why in (Why.MISSING, Why.UNPARSABLE) else Result.UNCHANGED
            before = current.get(update.file)
            outcomes.setdefault(update.file, _outcome(update, result, before=before, detail=why.value))
        for write in plan.writes:
            known = outcomes.get(write.update.file)
            if known is None or known.result in (Result.WRITTEN, Result.UNCHANGED):
                outcome = self._write(write, current[write.update.file])
                outcomes[write.update.file] = outcome
                if outcome.result is not Result.WRITTEN:
                    # a loosened value may stand there now: what was cached is not what the file says
                    self._cache.forget(write.update.file)
        for update in plan.settled:
            if outcomes[update.file].result in (Result.WRITTEN, Result.UNCHANGED):
                self._cache.remember(update, now_ms)
        if now_ms - self._purged_ms >= PURGE_EVERY_MS:
            self._cache.purge(now_ms)
            self._purged_ms = now_ms
        return tuple(outcomes.values())

    def forget(self, file: CgroupFile) -> None:
        """Look at this file again in the next round whatever the cache says."""
        self._cache.forget(file)

    def _is_allowed(self, update: Update, outcomes: dict[CgroupFile, Outcome]) -> bool:
        try:
            require_inside(update.file.directory, self._trees)
            validate(update.file.resource, update.value)
        except (OutsideTree, InvalidInput) as error:
            outcomes[update.file] = _outcome(update, Result.REFUSED, detail=str(error))
            return False
        except Unsupported as error:
            outcomes[update.file] = _outcome(update, Result.IGNORED, detail=str(error))
            return False
        return True

    def _write(self, write: Write, before: str | None) -> Outcome:
        update = write.update
        try:
            self._host.write(update.file, write.value)
        except (Vanished, Unsupported) as error:
            return _outcome(update, Result.IGNORED, before=before, detail=str(error))
        except WriteFailed as error:
            return _outcome(update, Result.FAILED, before=before, detail=str(error))
        after = self._host.read(update.file)
        held = after is not None and is_equal(update.file.resource, after, write.value, self._host.cgroup_version)
        detail = "" if held else f"{update.file.key}: wrote {write.value!r}, reads {after!r}"
        return _outcome(update, Result.WRITTEN, before=before, after=after, held=held, detail=detail)


def _outcome(
    update: Update,
    result: Result,
    *,
    before: str | None = None,
    after: str | None = None,
    held: bool = True,
    detail: str = "",
) -> Outcome:
    return Outcome(
        file=update.file, value=update.value, result=result, before=before, after=after, held=held, detail=detail
    )
