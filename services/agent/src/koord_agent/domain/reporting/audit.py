"""The events of the audit log: writes, plans that lost, interference, evictions; and the rotation of its files.

`koord_agent.shell.store.audit_log` writes and reads the files.

Source: agent spec, 19. Vectors: audit_query.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
from koordcore.events.envelope import Event
from koordcore.events.nodestate import EvictedPod, InterferenceDetected, InterferenceEnded

from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.plans.arbiter import Arbitration, Loser
from koord_agent.domain.reporting.knob_summary import KnobWrite

ACTIVE_FILE = "audit.log"
ROTATE_AT_BYTES = 2 * 1024 * 1024
NUMBERS_PER_SECOND = 9
DEFAULT_PAGE = 256
LARGEST_PAGE = 2048
READERS = 4
READER_IDLE_SECONDS = 600.0
FLUSH_SECONDS = 5.0
_ROTATED = re.compile(r"audit-\d{4}-\d{2}-\d{2}-\d{2}-\d{2}-\d{2}-\d\.log")
_NUMBER = re.compile(r"[+-]?\d{1,18}")
DEFAULT_REASON = "UpdateCgroups"


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One line of the audit log. Empty fields are left out of the file."""

    created_at: str = ""  # RFC 3339 time of the event
    type: str = ""  # Kind of the object: `node`, `pod`, `group` or `unknown`
    level: str = ""  # `info` or `warning`
    namespace: str = ""
    name: str = ""
    container: str = ""
    reason: str = ""  # Reason in one word
    message: str = ""
    old_value: str = ""
    new_value: str = ""
    strategy: str = ""


def is_written(verbosity: int, verbose: int) -> bool:
    """`verbosity` is larger for less important events; events up to `verbose` are written, and all for 0."""
    return verbose == 0 or verbosity <= verbose


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """Renames and deletions of files of the audit log, when the present file is full."""

    rename_to: str | None  # New name of the full file; None if all names of this second are in use
    remove: tuple[str, ...]


def is_rotated(name: str) -> bool:
    """Whether a file is a full, renamed one."""
    return _ROTATED.fullmatch(name) is not None


def rotate(existing: Iterable[str], timestamp: str, max_disk_mb: int) -> Rotation:
    """Return the new name of a full file of the audit log, and the oldest files, which have to be deleted.

    Fewer than max_disk_mb / 2 rotated files are left. `timestamp` is YYYY-MM-DD-hh-mm-ss.
    """
    names = {name for name in existing if is_rotated(name)}
    candidates = (f"audit-{timestamp}-{number}.log" for number in range(NUMBERS_PER_SECOND))
    new = next((name for name in candidates if name not in names), None)
    after = sorted(names | ({new} if new is not None else set()))
    too_many = max(0, len(after) - max(max_disk_mb // 2 - 1, 0))
    return Rotation(rename_to=new, remove=tuple(after[:too_many]))


class BadRequest(ValueError):
    """Raised if a query of the audit log asks for a page size that is not allowed."""


def page_size(text: str, *, default: int = DEFAULT_PAGE, largest: int = LARGEST_PAGE) -> int:
    """The default applies if the text in the query is empty or not a number.

    Raises:
        BadRequest: The number is negative or above the largest page (D-27).
    """
    if _NUMBER.fullmatch(text) is None:
        return default
    size = int(text)
    if size < 0 or size > largest:
        raise BadRequest(f"size: must be 0..{largest}, is {size}")
    return size


def write_event(look: NodeLook, write: KnobWrite) -> AuditEvent:
    """It is about a pod if the file belongs to a pod, otherwise about a group."""
    directory = write.file.directory
    pod = next((pod for pod in look.pods if _is_below(directory, look.pod_directory(pod))), None)
    return AuditEvent(
        type="pod" if pod is not None else "group",
        namespace=pod.namespace if pod is not None else "",
        name=pod.name if pod is not None else directory,
        reason=(write.winner.reason if write.winner is not None else "") or DEFAULT_REASON,
        message=f"update {write.file.key} from {write.before} to {write.after}",
        old_value=write.before,
        new_value=write.after,
        strategy=",".join(write.winner.plugins) if write.winner is not None else "",
    )


def lost_event(loser: Loser, arbitration: Arbitration) -> AuditEvent:
    """About a plan that was not carried out, because another plan for the same file won. It has not expired."""
    plan, winner = loser.plan, arbitration.winners[loser.plan.file]
    return AuditEvent(
        type="group",
        name=plan.file.directory,
        reason="ArbitratePlan",
        message=f"{plan.file.key}: {','.join(winner.plugins)} has {winner.value};"
        f" {plan.plugin} wanted {plan.value}: {loser.loss}",
        strategy=plan.plugin,
    )


def interference_event(fact: Event) -> AuditEvent | None:
    """About a contention that began or ended; None for other facts."""
    match fact:
        case InterferenceDetected():
            suspects = ", ".join(f"{s.namespace}/{s.name} {s.score:.0%}" for s in fact.suspects) or "none"
            return AuditEvent(
                type="pod",
                namespace=fact.namespace,
                name=fact.name,
                reason="interference",
                message=f"{fact.signal} {fact.value:g} reached {fact.threshold:g}; suspects: {suspects}",
            )
        case InterferenceEnded():
            return AuditEvent(type="node", reason="interference", message=f"{fact.contention} ended")
        case _:
            return None


def eviction_event(feature: str, reason: str, pod: EvictedPod) -> AuditEvent:
    message = f"trigger by koordlet feature {feature}, kill pod: {pod.name}; {reason}"
    return AuditEvent(type="pod", namespace=pod.namespace, name=pod.name, reason="evicted", message=message)


def _is_below(directory: str, pod_directory: str) -> bool:
    return directory == pod_directory or directory.startswith(pod_directory + "/")
