"""Which conditions of a node are bad."""

from typing import Final

from koordcore.protocol.objects import NodeCondition

READY: Final = "Ready"
PRESSURES: Final = frozenset(("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"))
"""Conditions of Kubernetes that are bad if they are True."""


def is_bad(condition: NodeCondition) -> bool:
    """Conditions that others than Kubernetes report are not: of some, such as EtcdIsVoter, the status True is good.

    Source:
        kubernetes, pkg/apis/core/types.go: NodeConditionType
    """
    if condition.type == READY:
        return condition.status != "True"
    return condition.type in PRESSURES and condition.status == "True"
