"""The taint of a cordoned node, which Kubernetes' node lifecycle controller keeps.

Source:
    reality spec, 1.6
"""

from typing import Final

import msgspec
from koordcore.protocol.objects import NodeSpec, Taint

CORDONED: Final = "node.kubernetes.io/unschedulable"
_EFFECT: Final = "NoSchedule"


def with_cordon_taint(spec: NodeSpec) -> NodeSpec:
    """Return the spec of a node with the taint if it is unschedulable, and without it if it is not.

    A spec that is right already is returned itself. Without an API server only: with one, its controller does this.
    """
    has_taint = any(_is_of_cordon(taint) for taint in spec.taints)
    if has_taint == spec.unschedulable:
        return spec
    taints = [taint for taint in spec.taints if not _is_of_cordon(taint)]
    if spec.unschedulable:
        taints.append(Taint(key=CORDONED, effect=_EFFECT))
    return msgspec.structs.replace(spec, taints=taints)


def _is_of_cordon(taint: Taint) -> bool:
    return taint.key == CORDONED and taint.effect == _EFFECT
