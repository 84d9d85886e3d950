"""What keeps pods away from a node, as short texts for lists: its conditions and its taints."""

from typing import Final

from koordcore.protocol.node_conditions import READY, is_bad
from koordcore.protocol.objects import Node

_SHOWN_TAINTS: Final = 20
_LONGEST_TAINT: Final = 200


def conditions_text(node: Node) -> str:
    """The conditions that are bad, separated by blanks: NotReady, DiskPressure; "" if none is.

    A node without the condition Ready has no kubelet that reports one, and is not called NotReady.
    """
    bad = [each.type for each in node.status.conditions if is_bad(each)]
    return " ".join("NotReady" if type_ == READY else type_ for type_ in bad)


def taints_text(node: Node) -> str:
    """The taints as kubectl writes them, separated by blanks; at most 20, each cut after 200 characters."""
    texts = [
        f"{each.key}{'=' if each.value else ''}{each.value}:{each.effect}"[:_LONGEST_TAINT]
        for each in node.spec.taints[:_SHOWN_TAINTS]
    ]
    return " ".join(texts)
