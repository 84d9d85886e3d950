"""The base class of the states of aggregates, each of which is a fold of the aggregate's events."""

import msgspec


class AggregateState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base class of the states of all aggregates. A state is the result of folding the events of one aggregate.

    Attributes:
        seq: Sequence of the last event of this aggregate. The next append must state this sequence as the expected one.
    """

    seq: int
