"""Write the winning plans to a host: only changes, in the planned order, and with a check of the result.

`koord_agent.domain.plans.arbiter` picks the winners, `koord_agent.domain.plans.executor` orders the writes. If the
agent is killed after any write, limits are too loose but never inconsistent, and the next cycle completes the writes.
Each host has one executor; calls must not overlap.
"""

import posixpath
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from koordcore.values.invalid import InvalidInput

from koord_agent.domain.kernel.cfs_bandwidth import BURST, PER_PERIOD, QUOTA
from koord_agent.domain.kernel.cgroup_files import (
    IDLE,
    SHARES,
    Unsupported,
    from_file_text,
    is_equal,
    is_in_force,
    validate,
)
from koord_agent.domain.plans.arbiter import CPUSET, Arbitration, arbitrate
from koord_agent.domain.plans.executor import Update, Why, Write, levels_of, plan_writes
from koord_agent.domain.plans.plan import CgroupFile, OutsideTree, Plan, require_inside
from koord_agent.shell.host.host import Host, Vanished, WriteFailed


class Result(StrEnum):
    """Result of writing one planned value in a cycle.

    WRITTEN. UNCHANGED: the file had it. IGNORED: no such file. REFUSED: not allowed or not valid. FAILED: the kernel
    refused it. HELD_BACK: skipped because a parent or child could not change.
    """

    WRITTEN = "written"
    UNCHANGED = "unchanged"
    IGNORED = "ignored"
    """The file is missing or not supported, or its present text is invalid. It is tried again in the next cycle."""
    REFUSED = "refused"
    """The file is outside of the agent's directories, or the value is invalid. Nothing was written."""
    FAILED = "failed"
    """The kernel refused the value. It is tried again in the next cycle."""
    HELD_BACK = "held back"
    """Skipped because the parent could not grow or a child could not shrink. It is tried again in the next cycle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    file: CgroupFile
    value: str
    result: Result
    before: str | None = None  # Text of the file before; None if not read
    after: str | None = None  # Text of the file after the write; None if nothing was written, or the file vanished
    held: bool = True  # Whether the text after the write has the wanted value; True if nothing was written
    detail: str = ""  # Explanation of the result; "" for none


ObserveWrite = Callable[[str, bool, float], None]
"""Function that gets each write: resource, whether the kernel accepted it, seconds."""


class CgroupExecutor:
    """Writes the winning plans to the files of one machine.

    Files outside of `trees` are refused.
    """

    def __init__(
        self,
        host: Host,
        *,
        trees: Sequence[str],
        observe: ObserveWrite = lambda _resource, _written, _seconds: None,
        read: Callable[[CgroupFile], str | None] | None = None,
    ) -> None:
        """`read` returns what a file has before the first write of a cycle; None: it is read from the host."""
        self._host = host
        self._read = read or host.read
        self._observe = observe
        self._trees = tuple(trees)

    def allow(self, trees: Sequence[str]) -> None:
        """Set the directories that may be written, after host applications were configured or removed."""
        self._trees = tuple(trees)

    def apply(self, plans: Iterable[Plan], now_ms: int) -> tuple[Outcome, ...]:
        """One outcome for each file with a plan that is not expired."""
        return self.write(self.arbitrate(plans, now_ms))

    def arbitrate(self, plans: Iterable[Plan], now_ms: int) -> Arbitration:
        """Present values of parent directories limit their children, and present quotas the burst buffers."""
        wanted = tuple(plans)
        return arbitrate(wanted, now_ms, self._limiting(wanted))

    def write(self, arbitration: Arbitration) -> tuple[Outcome, ...]:
        """One outcome for each file. If a write fails, its outcome tells so; no error is raised."""
        return self.apply_levels(levels_of(arbitration.winners.values()))

    def _limiting(self, plans: Sequence[Plan]) -> dict[CgroupFile, str]:
        """Files that limit planned ones, if they have no plan themselves.

        CPU lists and quotas of the parents of planned directories; quotas of planned burst buffers, and the reverse.
        """
        planned = {plan.file for plan in plans}
        limits: set[CgroupFile] = set()
        for directory, resource in ((file.directory, file.resource) for file in planned):
            if resource in (CPUSET, QUOTA) and posixpath.dirname(directory):
                limits.add(CgroupFile(posixpath.dirname(directory), resource))
            if resource in PER_PERIOD:
                limits.add(CgroupFile(directory, BURST if resource == QUOTA else QUOTA))
        found: dict[CgroupFile, str] = {}
        for file in limits - planned:
            text = self._read(file)
            try:
                value = None if text is None else from_file_text(file.resource, text, self._host.cgroup_version)
            except (InvalidInput, Unsupported):
                continue
            if value is not None and is_in_force(file.resource, value):
                found[file] = value
        return found

    def apply_levels(self, levels: Sequence[Sequence[Update]]) -> tuple[Outcome, ...]:
        """Write updates by level of directories, from top to bottom. The outcomes are those of `write`."""
        outcomes: dict[CgroupFile, Outcome] = {}
        idle = {
            update.file.directory: update.value for level in levels for update in level if update.file.resource == IDLE
        }
        allowed = [[update for update in level if self._is_allowed(update, idle, outcomes)] for level in levels]
        if not any(allowed):
            return tuple(outcomes.values())
        current = {update.file: self._read(update.file) for level in allowed for update in level}
        plan = plan_writes(allowed, current, version=self._host.cgroup_version)
        for update, why in plan.skipped:
            result = Result.IGNORED if why in (Why.MISSING, Why.UNPARSABLE) else Result.UNCHANGED
            before = current.get(update.file)
            outcomes.setdefault(update.file, _outcome(update, result, before=before, detail=why.value))
        refused: list[CgroupFile] = []
        for write in plan.writes:
            known = outcomes.get(write.update.file)
            if known is None or known.result in (Result.WRITTEN, Result.UNCHANGED):
                before = current[write.update.file]
                waits_for = next((file for file in refused if write.needs(file)), None)
                if waits_for is not None:
                    detail = f"{write.update.file.key}: {write.update.value!r} waits for {waits_for.key}"
                    outcome = _outcome(write.update, Result.HELD_BACK, before=before, detail=detail)
                else:
                    outcome = self._write(write, before)
                outcomes[write.update.file] = outcome
                if outcome.result in (Result.FAILED, Result.HELD_BACK):
                    refused.append(write.update.file)
        return tuple(outcomes.values())

    def _is_allowed(self, update: Update, idle: Mapping[str, str], outcomes: dict[CgroupFile, Outcome]) -> bool:
        """`idle` has the planned values of cpu.idle by directory."""
        try:
            require_inside(update.file.directory, self._trees)
            validate(update.file.resource, update.value, self._host.cgroup_version)
            if update.file.resource == CPUSET and not update.value.strip():
                raise InvalidInput("at least one CPU", update.value, update.file.key)
        except (OutsideTree, InvalidInput) as error:
            outcomes[update.file] = _outcome(update, Result.REFUSED, detail=str(error))
            return False
        except Unsupported as error:
            outcomes[update.file] = _outcome(update, Result.IGNORED, detail=str(error))
            return False
        if update.file.resource == SHARES:
            directory = update.file.directory
            if (idle.get(directory) or self._read(CgroupFile(directory, IDLE)) or "").strip() == "1":
                outcomes[update.file] = _outcome(update, Result.IGNORED, detail="an idle cgroup has no shares")
                return False
        return True

    def _write(self, write: Write, before: str | None) -> Outcome:
        update, began, written = write.update, time.monotonic(), False
        try:
            self._host.write(update.file, write.value)
            written = True
        except (Vanished, Unsupported) as error:
            return _outcome(update, Result.IGNORED, before=before, detail=str(error))
        except WriteFailed as error:
            return _outcome(update, Result.FAILED, before=before, detail=str(error))
        finally:
            self._observe(update.file.resource, written, time.monotonic() - began)
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
