"""States of the aggregates about the log itself: orders to folds, and restores."""

from koordcore.state.base import AggregateState


class FoldControlState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """Sequences of the events that operators ordered one fold to skip."""

    skipped: list[int] = []


class LogState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """State of the log itself: its newest restore.

    Attributes:
        restored_to: Position of the last fact that the newest restore kept; 0 if all facts were kept.
    """

    restored_to: int = 0
