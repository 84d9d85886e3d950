"""Positions of the log that a scheduler has reached."""

from koord_scheduler.domain.commit.own_appends import OwnAppends


class LogPosition:
    """Positions of the log that a scheduler has reached.

    Attributes:
        position: Last folded sequence of the facts stream.
        observed: Last folded sequence of the observations stream.
        acknowledged: Last known position of an append of this process.
        read_ahead: Last position that was read ahead of the fold.
        own: Own appends that the log has not answered yet.
    """

    def __init__(self) -> None:
        self.position = 0
        self.observed = 0
        self.acknowledged = 0
        self.read_ahead = 0
        self.own = OwnAppends()
