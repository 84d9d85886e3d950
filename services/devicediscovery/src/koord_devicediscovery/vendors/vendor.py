"""What a module of a vendor gets and gives: access to a machine, entries of the device file, its own definition.

Source: runtime spec, 8.3, 8.4, 9.3.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec
from koordcore.protocol.hardware.devices import PciLocation
from koordcore.protocol.resource_names import GPU_CORE, GPU_MEMORY

UNKNOWN: Final = "-1"
"""Text of an unknown socket or NUMA node."""


class XpuTopology(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Location of a device on the node.

    Attributes:
        socket_id: CPU socket. No vendor's tool tells it, so it is always "-1".
        node_id: NUMA node; "-1" if it is unknown.
        pcie_id: PCIe root, such as `pci0000:80`; "" if it is unknown.
        bus_id: PCI address, such as `0000:81:00.0`.
    """

    # The default is never used: `socketID` and `nodeID` are written also when they are unknown.
    socket_id: str = msgspec.field(default="", name="socketID")
    node_id: str = msgspec.field(default="", name="nodeID")
    pcie_id: str = msgspec.field(default="", name="pcieID")
    bus_id: str = msgspec.field(default="", name="busID")


class XpuStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Health of a device. `err_code` and `err_message` are left out of the file if they are empty."""

    healthy: bool
    err_code: str | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="errCode")
    err_message: str | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="errMessage")


class Xpu(msgspec.Struct, frozen=True, kw_only=True):
    """One accelerator of the node.

    Attributes:
        vendor: Name of the vendor, such as `huawei`.
        model: Name of the model, such as `Ascend-910B4`.
        uuid: Identifier that is unique on the node.
        minor: Number of the device below /dev, in decimal digits.
        resources: Kubernetes quantity of each resource of the device.
        topology: Location of the device.
        status: Health of the device.
    """

    vendor: str
    model: str
    uuid: str
    minor: str
    resources: dict[str, str]
    topology: XpuTopology
    status: XpuStatus


HEALTHY: Final = XpuStatus(healthy=True)


def unhealthy(code: str = "", message: str = "") -> XpuStatus:
    """Return the status of a device that must take no new pod.

    Args:
        code: Short error code; "" if the tool gives none.
        message: Sentence for the person who reads it; "" if there is none.
    """
    return XpuStatus(healthy=False, err_code=code or msgspec.UNSET, err_message=message or msgspec.UNSET)


def gpu_resources(memory: str) -> dict[str, str]:
    """Return the resources of a whole card: its memory as a Kubernetes quantity, and 100 percent of its cores."""
    return {GPU_MEMORY: memory, GPU_CORE: "100"}


def file_content(devices: Sequence[Xpu]) -> bytes:
    """Return the content of the device file: a JSON array with an indentation of two spaces."""
    return msgspec.json.format(msgspec.json.encode(devices), indent=2) + b"\n"


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
