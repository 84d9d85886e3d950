"""Inputs of discovery from a machine: PCI functions, device files, and the output of vendors' tools.

Source: runtime spec, 8.4, 9.3.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from koordcore.protocol.hardware.devices import PciLocation

from koord_devicediscovery.domain.xpu import UNKNOWN, XpuTopology


class DiscoveryError(Exception):
    """Raised if the devices of a vendor cannot be described.

    The message names the tool and what is wrong with its output.
    """


class ToolError(DiscoveryError):
    """Raised if a vendor's tool failed.

    Attributes:
        output: Text that the tool printed before it ended.
    """

    def __init__(self, tool: str, status: int, output: str) -> None:
        self.output = output
        super().__init__(f"{tool} ended with status {status}: {output.strip()[:200]}")


@dataclass(frozen=True, slots=True)
class PciFunction:
    """Vendor and product number of a PCI function, as four lower-case hexadecimal digits each."""

    vendor: str
    product: str

    @classmethod
    def of(cls, vendor: str, product: str) -> "PciFunction":
        """Return the function for a vendor and product number as sysfs writes them, with or without prefix `0x`."""
        return cls(*(text.strip().lower().removeprefix("0x") for text in (vendor, product)))


class Machine(Protocol):
    """Access to one machine for device discovery. Every call may do I/O."""

    def pci_functions(self) -> Sequence[PciFunction]:
        """Return all PCI functions."""
        ...

    def locate(self, bus_id: str) -> PciLocation | None:
        """Return the location of the PCI function with this address in lower case; None if sysfs does not tell it."""
        ...

    def device_files(self) -> Sequence[str]:
        """Return the paths of the files directly below /dev."""
        ...

    def ask(self, query: str, card: int | None = None) -> str:
        """Run the tool of a vendor and return what it prints, its error output included.

        Args:
            query: Key of a command in the table `COMMANDS` of the vendor.
            card: Number that replaces `{card}` in the command; None if the command has no `{card}`.

        Raises:
            ToolError: The tool is missing, ended with another status than 0, or took too long.
        """
        ...


def topology_of(machine: Machine, bus_id: str) -> XpuTopology:
    """Return the location of a card on the node. If sysfs does not know its PCI address, only the address is set.

    Args:
        machine: The machine to read.
        bus_id: PCI address as the tool prints it.
    """
    address = bus_id.lower()
    found = machine.locate(address)
    if found is None:
        return XpuTopology(socket_id=UNKNOWN, node_id=UNKNOWN, bus_id=address)
    return XpuTopology(socket_id=UNKNOWN, node_id=str(found.numa_node), pcie_id=found.root, bus_id=address)


def lines_with(output: str, *texts: str) -> Iterator[list[str]]:
    """Yield the fields, separated by blanks, of each line of a tool's output that contains one of the texts."""
    return (line.split() for line in output.splitlines() if any(text in line for text in texts))


def first_line_with(output: str, text: str) -> list[str]:
    """Return the fields, separated by blanks, of the first line that contains a text; empty if no line contains it."""
    for fields in lines_with(output, text):
        return fields
    return []


def field_of(fields: Sequence[str], index: int, what: str) -> str:
    """Return one field of a line of a tool's output.

    Args:
        fields: Fields of the line.
        index: Position from 0, or -1 for the last one.
        what: Name of the field's content, for the error.

    Raises:
        DiscoveryError: The line has no such field.
    """
    try:
        return fields[index]
    except IndexError:
        raise DiscoveryError(f"{what} must be field {index} of the line, got {' '.join(fields)!r}") from None


def sum_of_last_fields(output: str, *texts: str) -> int:
    """Return the sum of the last fields of all lines that contain one of the texts.

    Raises:
        DiscoveryError: A last field is not an integer.
    """
    total = 0
    for fields in lines_with(output, *texts):
        text = field_of(fields, -1, texts[0])
        try:
            total += int(text)
        except ValueError:
            raise DiscoveryError(f"{' '.join(fields)!r}: the last field must be an integer, got {text!r}") from None
    return total
