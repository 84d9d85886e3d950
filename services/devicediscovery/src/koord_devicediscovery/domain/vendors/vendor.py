"""Definition of a vendor for the inventory.

Source: runtime spec, 8.4.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from koord_devicediscovery.domain.machine import Machine
from koord_devicediscovery.domain.xpu import Xpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Result of `Vendor.discover` on a machine.

    Attributes:
        devices: Described devices, in the order of the tool.
        failed: Minor of a card whose own command failed -> the error.
    """

    devices: Sequence[Xpu] = ()
    failed: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """Definition of one vendor: how its cards are recognised and described.

    Attributes:
        key: Name of the vendor in logs and metrics.
        pci_vendor: PCI vendor number in lower-case hexadecimal digits.
        not_cards: PCI product numbers of this vendor that are not accelerators.
        commands: Query -> command line. `{card}` in a word is replaced by the number of a card.
        discover: Describes the devices. It may raise DiscoveryError.
    """

    key: str
    pci_vendor: str
    commands: Mapping[str, Sequence[str]]
    discover: Callable[[Machine], Found]
    not_cards: frozenset[str] = frozenset()

    def is_present(self, machine: Machine) -> bool:
        """Return whether the machine has a card of this vendor."""
        return any(
            function.vendor == self.pci_vendor and function.product not in self.not_cards
            for function in machine.pci_functions()
        )
