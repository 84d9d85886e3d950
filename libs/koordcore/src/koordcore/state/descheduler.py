"""State of the descheduler itself: the configuration with which it leads.

The events are in `koordcore.events.descheduling.operation`.
"""

from typing import Any

from koordcore.state.base import AggregateState


class DeschedulerState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The configuration of the leading descheduler.

    Attributes:
        configuration_hash: Hash of the effective configuration; "" before the first one was recorded.
        configuration: The effective configuration.
        configured_at: When it was first used, RFC 3339.
    """

    configuration_hash: str = ""
    configuration: dict[str, Any] = {}
    configured_at: str = ""
