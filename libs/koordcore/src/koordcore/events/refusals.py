"""What the services did not take from a node. Stream `KOORD_EXPLANATIONS_<cluster>`, subject `explanations.node.<n>`.

Writer: the manager. It is no fact: no state follows from it. `koord doctor` shows the newest one of each node.

Source: reality spec, 6.2.
"""

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


@CATALOGUE.register(kind="node", stream="explanations")
class NodeMessagesRefused(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Messages of a node were passed over or refused. The node itself goes on, and so do all others."""

    # Kind of refusal (`koordcore.bus.refusals.Refused`) -> number of messages since `since`.
    counts: dict[str, int]
    since: str  # RFC 3339 time from which on they are counted: the start of the service
    last: str  # Kind of the last refusal
    position: int = 0  # Position of the last refused message in its stream; 0 if it was not stored
    reason: str  # Why the last message was refused, one sentence
