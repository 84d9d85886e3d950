"""Whether the log has all its facts: findings of `koord doctor` about the stream of facts. Pure functions.

`koordctl.log.examining` reads what they judge. docs/runbook.md has the remedies.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from koordcore.embedded.nats import RESTART_FREE_BYTES
from koordcore.events.log import LogRestored

from koordctl.log.health import Finding, Verdict

CHECK: Final = "facts"
MOST_READS: Final = 200
"""Largest number of facts that are read to see whether the files of the log (of 8 MiB) can be read."""
_MOST_NAMED: Final = 5
GONE: Final = "docs/runbook.md, 'The log is gone': restore it; koord bus bootstrap --new-log begins anew"
LOST: Final = "docs/runbook.md, 'The log has lost facts': restore it, and restart no service before"
UNREADABLE: Final = "docs/runbook.md, 'The log cannot be read': restore it, and do not restart nats-server before"
WENT_BACK: Final = "docs/runbook.md, 'The log went back': restore it; delete no rows, snapshots or archives before"
DISK_FULL: Final = "docs/runbook.md, 'The disk is full'"


class Bounds(NamedTuple):
    """The stream of facts, as its server describes it."""

    first: int  # Position of the oldest fact
    last: int  # Position of the newest fact; 0 if there never was one
    messages: int  # Number of facts


def bounds_of(info: Mapping[str, Any]) -> Bounds:
    """`info`: answer of the NATS server about the stream."""
    state = info["state"]
    return Bounds(int(state["first_seq"]), int(state["last_seq"]), int(state["messages"]))


def gone_finding(stream: str, evidence: Sequence[str]) -> Finding:
    """BROKEN: the stream of facts does not exist.

    Args:
        evidence: Names of the streams whose messages prove that it did; none for a new cluster.
    """
    if not evidence:
        return Finding(f"stream {stream}", Verdict.BROKEN, "does not exist", "koord bus bootstrap")
    return Finding(f"stream {stream}", Verdict.BROKEN, f"is gone: {', '.join(evidence)} had messages", GONE)


def left_out(restores: Iterable[LogRestored]) -> list[range]:
    """Return the positions that restores to an earlier moment have left out."""
    return [range(each.position + 1, each.left_out_to + 1) for each in restores]


def count_finding(bounds: Bounds, gaps: Sequence[range]) -> Finding:
    """BROKEN: the log has fewer facts than positions. `gaps`: positions that may be missing."""
    allowed = sum(len(range(max(gap.start, bounds.first), min(gap.stop, bounds.last + 1))) for gap in gaps)
    missing = bounds.last - bounds.first + 1 - bounds.messages - allowed
    told = f"{bounds.messages:,} facts at the positions {bounds.first} to {bounds.last}"
    if missing > 0 and bounds.messages:
        return Finding(CHECK, Verdict.BROKEN, f"{missing:,} facts are missing: {told}", LOST)
    return Finding(CHECK, Verdict.OK, told)


def positions_to_read(bounds: Bounds, gaps: Sequence[range]) -> list[int]:
    """Return the first and the last position and those in between, at most 200 at equal distances."""
    if not bounds.messages:
        return []
    count = min(MOST_READS, bounds.last - bounds.first + 1)
    step = (bounds.last - bounds.first) / max(1, count - 1)
    chosen = sorted({bounds.first + round(step * number) for number in range(count)})
    return [position for position in chosen if not any(position in gap for gap in gaps)]


def readable_finding(read: int, unreadable: Sequence[int], silent: str = "") -> Finding:
    """BROKEN: some facts cannot be read.

    Args:
        read: Number of positions that were read.
        unreadable: Those of them for which the server has no fact.
        silent: Why the server did not answer; "" if it did.
    """
    check = "reading facts"
    if unreadable:
        shown = ", ".join(map(str, unreadable[:_MOST_NAMED]))
        more = f" and {len(unreadable) - _MOST_NAMED} more" if len(unreadable) > _MOST_NAMED else ""
        return Finding(check, Verdict.BROKEN, f"the server has no fact at {shown}{more}", UNREADABLE)
    if silent:
        return Finding(check, Verdict.BROKEN, f"no answer: {silent}", UNREADABLE)
    return Finding(check, Verdict.OK, f"{read} of them were read")


def ahead_findings(last: int, known: Mapping[str, int]) -> Iterator[Finding]:
    """BROKEN: something was made from facts that the log does not have: it has lost its newest ones.

    Args:
        last: Position of the newest fact of the log.
        known: What was made from facts, for example "the projector's tables" -> the newest position in it.
    """
    for what, position in known.items():
        if position > last:
            told = f"the log ends at {last}, {what} have facts up to {position}"
            yield Finding("end of the log", Verdict.BROKEN, told, WENT_BACK)


def storing_finding(trouble: str, free: int | None) -> Finding:
    """BROKEN: the server stores no facts after a failed write.

    Args:
        trouble: What it says; "" if it stores them.
        free: Free bytes of its disk; None if they are not known.
    """
    check = "storing facts"
    if not trouble:
        return Finding(check, Verdict.OK, "no write has failed")
    if free is not None and free < RESTART_FREE_BYTES:
        return Finding(check, Verdict.BROKEN, trouble, f"free space on its disk: {DISK_FULL}")
    space = "" if free is not None else "free space, then "
    return Finding(check, Verdict.BROKEN, trouble, f"{space}restart nats-server: {DISK_FULL}")
