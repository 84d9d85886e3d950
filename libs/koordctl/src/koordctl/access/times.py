"""Translation between positions of the log and times, and the clock of the running stack.

A time means when the server stored a fact (`koordcore.bus.folds.replay.position_at_time`). Users name it by the clock
of the run, which runs faster than the host's clock if the stack was started with `--speed`.
"""

from koordcore.ports.clock import Clock
from koordcore.service.clock import ScaledClock, host_moment
from koordcore.values.timestamps import unix_nanos

from koordctl.access.clock import given_moment, parse_moment, run_clock
from koordctl.access.log import OpenLog
from koordctl.render.output import errors, fail


def given_position(option: str, text: str, last: int) -> int | None:
    """Return the value of an option as a position, or None if it is not a number.

    If it is beyond the end of the log, end the command with exit status 1.
    """
    if not (text.isascii() and text.isdigit()):
        return None
    if int(text) > last:
        fail(f"{option} {text}: the log ends at {last}")
    return int(text)


async def first_at(log: OpenLog, text: str, *, from_first: bool = False) -> int:
    """Return the position of the first event that the server stored at or after a time.

    The result is one past the end of the log if there is no such event. It is found by binary search. If the clock of
    the server was set back, the result is one of several such positions.

    Args:
        text: RFC 3339 time, by the clock of the run. It differs from the host's clock if the stack runs with
            `--speed`. A time without an offset is UTC.
        from_first: Whether the first fact of the log may be the result although earlier ones were dropped. Otherwise,
            the command ends with an error.

    Raises:
        ValueError: The text is not an RFC 3339 time.
    """
    wanted = unix_nanos(host_moment(run_clock(), parse_moment(text))) - 999
    head = await log.bus.events.head()
    low, high = head.first_seq, head.last_seq + 1
    while low < high:
        middle = (low + high) // 2
        at = await _stored_at(log, middle, high)
        if at is not None and at < wanted:
            low = middle + 1
        else:
            high = middle
    if low == head.first_seq > 1 and not from_first:
        fail(f"{text}: the log begins at position {head.first_seq}; earlier facts are in the archive, name a position")
    return low


async def _stored_at(log: OpenLog, seq: int, below: int) -> int | None:
    """Return when the server stored the first event from position `seq` on, in nanoseconds since 1970.

    None if there is no event before position `below`.
    """
    stored = await log.facts.next_of(">", seq)
    return stored.stored_at_ns if stored is not None and stored.seq < below else None


def clock_sentence(clock: Clock) -> str:
    """A warning for the user if shown times are those of a simulated clock; else ""."""
    if not isinstance(clock, ScaledClock):
        return ""
    now = clock.now().isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")
    pace = f"{clock.speed:g} times as fast as real time" if clock.speed != 1 else "ahead of real time"
    return f"times are of the run's clock, which is {pace}; it shows {now} UTC"


def warn_of_clock() -> None:
    if clock := clock_sentence(run_clock()):
        errors.print(clock)


async def resolve_position(log: OpenLog, text: str | None, option: str) -> int:
    """Return the position that an option names: a position, a time, a duration before now; None: the newest event.

    If it is none of them, end the command with exit status 2. If the log does not have the position yet, end it with 1.
    """
    from koordcore.bus.folds.replay import position_at_time

    head = await log.bus.events.head()
    if text is None:
        return head.last_seq
    position = given_position(option, text, head.last_seq)
    if position is not None:
        return position
    moment = given_moment(option, text)
    archived, nanos = log.bus.archived_snapshots, unix_nanos(host_moment(run_clock(), moment))
    after = None if archived is None else await archived.position_before(nanos)
    return await position_at_time(log.bus.events, nanos, after=after)


async def resolve_window(log: OpenLog, begin: str | None, to: str | None) -> tuple[int, int]:
    """The positions that --from and --to name; None: the whole log. Errors: see `resolve_position`."""
    start = 0 if begin is None else await resolve_position(log, begin, "--from")
    end = await resolve_position(log, to, "--to")
    if start > end:
        fail(f"--from {start} is after --to {end}", status=2)
    return start, end
