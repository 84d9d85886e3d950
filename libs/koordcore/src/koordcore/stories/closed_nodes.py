"""Nodes that were closed for new pods or opened again, read from the facts of their objects.

`koord cordon` and CustomPriority set `spec.unschedulable`. A drain sets a taint and a label.

Source:
    descheduler spec, 11.2 (3), 12
"""

from collections.abc import Iterator
from typing import NamedTuple

from koordcore.events.descheduling.decisions import RoundDecided
from koordcore.protocol.drains.documents import DRAIN_NODE, NODE_GROUP, NODE_PLANNING
from koordcore.protocol.keys import CLOSED_BY
from koordcore.protocol.objects import Node


class Closer(NamedTuple):
    """The plugin of the descheduler that closed a node, with its profile and round. All are "" if no plugin closed it.

    Attributes:
        plugin: Name of the plugin.
        profile: Profile of the configuration.
        round: RFC 3339 time of the round.
    """

    plugin: str = ""
    profile: str = ""
    round: str = ""


def closers(event: RoundDecided) -> dict[str, Closer]:
    """Return name -> plugin, profile and round, for each node that a round closes for new pods."""
    by_node = {move.node: Closer(move.plugin, move.profile) for move in reversed(event.moves)}
    return {name: by_node.get(name, Closer())._replace(round=event.started_at) for name in event.closed}


class NodeAct(NamedTuple):
    """A change that closes a node or opens it.

    Attributes:
        action: `cordon`, `uncordon`, `taint`, `untaint` or `label`, as in the audit.
        key: Field, taint key or label that changed.
        value: Its new value; "" if it was removed.
        drain: Whether a drain made the change.
        user: User of `koord cordon` or `koord uncordon` who made the change; "" if it was made in another way.
            `koord uncordon` also removes what an ended drain has left on the node.
    """

    action: str
    key: str
    value: str
    drain: bool
    user: str = ""


def node_acts(before: Node | None, after: Node) -> Iterator[NodeAct]:
    """Yield the changes that close a node or open it, between two states of its object.

    Args:
        before: The object before; None if the node is new.
        after: The object after.
    """
    user = _user(before, after)
    was_closed = before is not None and before.spec.unschedulable
    if after.spec.unschedulable != was_closed:
        action = "cordon" if after.spec.unschedulable else "uncordon"
        value = str(after.spec.unschedulable).lower()
        yield NodeAct(action, "spec.unschedulable", value, drain=False, user=user)
    old, new = _drain_taint(before), _drain_taint(after)
    if old != new:
        yield NodeAct("untaint" if new is None else "taint", DRAIN_NODE, new or "", drain=not user, user=user)
    for label in (NODE_PLANNING, NODE_GROUP):
        previous = "" if before is None else before.metadata.labels.get(label, "")
        value = after.metadata.labels.get(label, "")
        if value != previous:
            yield NodeAct("label", label, value, drain=not user, user=user)


def signature(user: str, at: str) -> dict[str, str]:
    """Return the annotation of a node that names the user who closes or opens it, and the RFC 3339 time."""
    return {CLOSED_BY: f"{user} at {at}"}


def _user(before: Node | None, after: Node) -> str:
    """Return the user of the signature that was set with the change; "" if none was. An older one stays on the node."""
    earlier = "" if before is None else before.metadata.annotations.get(CLOSED_BY, "")
    text = after.metadata.annotations.get(CLOSED_BY, "")
    return text.rpartition(" at ")[0] if text != earlier else ""


def _drain_taint(node: Node | None) -> str | None:
    """Return the value of the taint that a drain sets; None if there is no such taint."""
    taints = [] if node is None else node.spec.taints
    return next((taint.value for taint in taints if taint.key == DRAIN_NODE), None)
