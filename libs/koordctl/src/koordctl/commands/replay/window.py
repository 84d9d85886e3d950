"""The part of the log that `koord replay` works on, as the options --from and --to name it."""

from koordcore.bus.folds.replay import position_at_time
from koordcore.values.timestamps import rfc3339

from koordctl.access.log import OpenLog
from koordctl.access.positions import given_position, parse_moment
from koordctl.render.output import fail


async def resolve_position(log: OpenLog, text: str | None, option: str) -> int:
    """Return the position of the log that the value of an option names.

    If the value is neither a position nor a time, end the command with exit status 2. If the log does not have the
    position yet, end it with exit status 1.

    Args:
        log: The log.
        text: A position or an RFC 3339 time; None for the newest event.
        option: Name of the option, for the error.
    """
    head = await log.bus.events.head()
    if text is None:
        return head.last_seq
    position = given_position(option, text, head.last_seq)
    if position is not None:
        return position
    try:
        moment = parse_moment(text)
    except ValueError:
        fail(f"{option} must be a position or an RFC 3339 time, got {text!r}", status=2)
    archived = log.bus.archived_snapshots
    after = None if archived is None else await archived.position_before(moment)
    return await position_at_time(log.bus.events, rfc3339(moment), after=after)
