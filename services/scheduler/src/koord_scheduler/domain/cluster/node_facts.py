"""What placement reads of a node besides its shape: the manager's decisions, and its container images.

Source: manager spec, 5 and 16.4
"""

from collections.abc import Mapping

import msgspec
from koordcore.events.nodepolicy import NodeDevicesComputed, NodeHealthAssessed, NodeOvercommitComputed
from koordcore.protocol.objects import Node
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY

FULL_WEIGHT = 100


class NodePolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The manager's decisions about one node: batch and mid resources, devices, and the weight of its scores."""

    # Batch or mid resource -> amount; None if the resource is withdrawn even if the node object states an amount.
    lent: dict[str, int | None] = {}
    devices: dict[str, int] = {}  # Resource of the node's devices -> amount
    weight: int = FULL_WEIGHT  # Factor of the node's total score in percent; 100 for a healthy node

    def evolve(self, event: object) -> "NodePolicy":
        """Other events than those of `nodepolicy.<name>` return it unchanged."""
        match event:
            case NodeOvercommitComputed():
                lent = {
                    BATCH_CPU: event.batch_cpu_milli,
                    BATCH_MEMORY: event.batch_memory_bytes,
                    MID_CPU: event.mid_cpu_milli,
                    MID_MEMORY: event.mid_memory_bytes,
                }
                return msgspec.structs.replace(self, lent=lent)
            case NodeDevicesComputed():
                return msgspec.structs.replace(self, devices=event.resources)
            case NodeHealthAssessed():
                return msgspec.structs.replace(self, weight=event.reported_weight)
            case _:
                return self

    def allocatable(self, own: Mapping[str, int]) -> dict[str, int]:
        """Return the node object's allocatable `own` with the manager's amounts and without withdrawn resources."""
        found = {**own, **self.devices}
        for resource, amount in self.lent.items():
            if amount is None:
                found.pop(resource, None)
            else:
                found[resource] = amount
        return found


NO_POLICY = NodePolicy()


def normalized(image: str) -> str:
    """With `:latest` if it has neither tag nor digest."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


def images_of(node: Node) -> dict[str, int]:
    """Normalized image name -> size in bytes."""
    return {normalized(name): image.size_bytes for image in node.status.images for name in image.names}
