"""Positions of the log that a scheduler has reached."""

from koord_scheduler.domain.commit.own_appends import OwnAppends


class LogPosition:
    """Positions in the streams up to which a scheduler has read and appended.

    Attributes:
        position: Position of the last folded event of the facts stream.
        observed: Position of the last folded report of the observations stream.
        acknowledged: Greatest position that the log has answered to an append of this process.
        read_ahead: Greatest position of an event that was folded before its turn, after a conflict.
        own: Own appends that the log has not answered yet.
    """

    def __init__(self) -> None:
        self.position = 0
        self.observed = 0
        self.acknowledged = 0
        self.read_ahead = 0
        self.own = OwnAppends()
