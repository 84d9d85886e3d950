"""Inventories of the devices of all nodes, by node name, and numbers of equal layouts, so that they share answers.

They are independent of the Node objects: a Device object may arrive before its node, and outlive it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from koordcore.values.allocation import AllocatedDevice

from koord_scheduler.domain.cluster.forgetting import Forgetting
from koord_scheduler.domain.plugins.device.inventory import Card, Inventory, inventory_of, read_device


class Inventories:
    """The devices of every node, as the Device objects state them.

    Args:
        has_node: Returns whether a node with this name exists.
    """

    def __init__(self, has_node: Callable[[str], bool] = lambda _: True) -> None:
        self.by_node: dict[str, Inventory] = {}  # Name of the node -> its devices
        self._has_node = has_node
        self._dropped: set[str] = set()
        self._forgetting = Forgetting()
        # Names of nodes where a device is, or was, unhealthy or missing. An event may have to report the unhealthy
        # devices of their pods. The reader of the attribute clears it.
        self.to_tell: dict[str, None] = {}
        # Names of nodes whose secondary devices were assumed to fit, and did not at Reserve. A name is removed when the
        # Device object changes.
        self.not_well_planned: set[str] = set()
        # Functions that are called with the name of each node whose devices have changed.
        self.followers: list[Callable[[str], None]] = []

    def put(self, document: object) -> list[str]:
        """Add or replace the devices of a node by a Device object, and call the followers.

        Args:
            document: The Device object as decoded JSON.

        Returns:
            A sentence for each entry of the object that is ignored.

        Raises:
            codec.DecodeError: A field of `metadata` has a wrong type.
            InvalidInput: The document is not a JSON object, or has no name.
        """
        node, inventory, problems = read_device(document)
        self.tell(node)
        before = self.by_node.get(node)
        self.by_node[node] = inventory
        self._dropped.discard(node)
        self._forget()
        if before is None or _devices(before) != _devices(inventory):
            self.to_tell[node] = None  # a device that is not in the object has failed for the pods that hold it
        self._changed(node)
        return [f"Device {node}: {problem}" for problem in problems]

    def drop(self, node: str) -> None:
        """Mark all devices of the node as unhealthy, because its Device object was deleted.

        Source: scheduler-fine-grained spec, 2.1.
        """
        known = self.by_node.get(node)
        if known is not None:
            cards = [_unhealthy(card) for of_type in known.cards.values() for card in of_type]
            self.by_node[node] = inventory_of(cards)[0]
            self._dropped.add(node)
            self._changed(node)

    def dropped(self) -> dict[str, list[Card]]:
        """Return name of a node -> its devices, for the nodes whose Device object was deleted, for a snapshot."""
        return {
            node: [card for of_type in self.by_node[node].cards.values() for card in of_type]
            for node in sorted(self._dropped)
        }

    def restore(self, dropped: Mapping[str, Sequence[Card]]) -> None:
        """Restore the result of `dropped` from a snapshot. The Device objects must have been restored before."""
        for node, cards in dropped.items():
            self.by_node[node] = inventory_of(cards)[0]
            self._dropped.add(node)
            self._changed(node)

    def _forget(self) -> None:
        """Forget nodes that do not exist and have no Device object. No-op until `Forgetting` requires a search."""
        if self._forgetting.is_due(len(self.by_node)):
            for node in [name for name in self._dropped if not self._has_node(name)]:
                del self.by_node[node]
                self._dropped.remove(node)
                self.to_tell.pop(node, None)
            self._forgetting.searched(len(self.by_node))

    def tell(self, node: str) -> None:
        """Add the node to `to_tell` if one of its devices is unhealthy, so that its pods are examined."""
        known = self.by_node.get(node)
        if known is not None and any(not card.is_healthy for cards in known.cards.values() for card in cards):
            self.to_tell[node] = None

    def tell_holders(self, node: str, devices: Iterable[AllocatedDevice]) -> None:
        """Add the node to `to_tell` if one of the devices that its pods hold is unhealthy or missing.

        Args:
            devices: Devices that pods on the node hold.
        """
        known = self.by_node.get(node)
        if known is None:
            return  # the Device object has not arrived yet
        for device in devices:
            card = known.by_minor.get(device.type, {}).get(device.minor)
            if card is None or not card.is_healthy:
                self.to_tell[node] = None

    def _changed(self, node: str) -> None:
        self.not_well_planned.discard(node)
        self.tell(node)
        for follower in self.followers:
            follower(node)


def _unhealthy(card: Card) -> Card:
    return replace(card, is_healthy=False, total={})


def _devices(inventory: Inventory) -> set[tuple[str, int]]:
    return {(type_, minor) for type_, of_type in inventory.by_minor.items() for minor in of_type}


class Layouts:
    """A number for each layout: nodes have equal numbers if their devices differ at most in their ids.

    A number is not used again. Layouts that no node has any more, such as those of devices that were unhealthy for a
    while, are forgotten when there are many.
    """

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._of_row: dict[int, int] = {}
        self._next = 0
        self._forgetting = Forgetting()

    def __len__(self) -> int:
        """Return the number of known layouts."""
        return len(self._numbers)

    def of(self, row: int) -> int:
        """Return the number of the layout of the node at position `row`.

        Raises:
            KeyError: The node has no devices.
        """
        return self._of_row[row]

    def put(self, row: int, layout: object) -> None:
        """Set the layout of the node at position `row`."""
        number = self._numbers.get(layout)
        if number is None:
            number = self._numbers[layout] = self._next
            self._next += 1
        self._of_row[row] = number
        if self._forgetting.is_due(len(self._numbers)):
            used = set(self._of_row.values())
            self._numbers = {each: number for each, number in self._numbers.items() if number in used}
            self._forgetting.searched(len(self._numbers))

    def drop(self, row: int) -> None:
        """Forget the layout of a node that has no devices any more. No-op if it had none."""
        self._of_row.pop(row, None)
