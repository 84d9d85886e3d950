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
    # The default is never used: `socketID` and `nodeID` are written also when they are unknown.
    # CPU socket. No vendor's tool tells it, so it is always "-1".
    socket_id: str = msgspec.field(default="", name="socketID")
    node_id: str = msgspec.field(default="", name="nodeID")  # NUMA node; "-1" if it is unknown
    pcie_id: str = msgspec.field(default="", name="pcieID")  # PCIe root, such as `pci0000:80`; "" if it is unknown
    bus_id: str = msgspec.field(default="", name="busID")  # PCI address, such as `0000:81:00.0`


class XpuStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`err_code` and `err_message` are left out of the file if they are empty."""

    healthy: bool
    err_code: str | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="errCode")
    err_message: str | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="errMessage")


class Xpu(msgspec.Struct, frozen=True, kw_only=True):
    """One accelerator of the node."""

    vendor: str  # Name of the vendor, such as `huawei`
    model: str  # Name of the model, such as `Ascend-910B4`
    uuid: str  # Identifier that is unique on the node
    minor: str  # Number of the device below /dev, in decimal digits
    resources: dict[str, str]  # Kubernetes quantity of each resource of the device
    topology: XpuTopology  # Location of the device
    status: XpuStatus  # Health of the device


HEALTHY: Final = XpuStatus(healthy=True)


def unhealthy(code: str = "", message: str = "") -> XpuStatus:
    """The status of a device that must take no new pod. `code` and `message` are "" if the tool gives none."""
    return XpuStatus(healthy=False, err_code=code or msgspec.UNSET, err_message=message or msgspec.UNSET)


def gpu_resources(memory: str) -> dict[str, str]:
    """A whole card: its memory as a Kubernetes quantity, and 100 percent of its cores."""
    return {GPU_MEMORY: memory, GPU_CORE: "100"}


def file_content(devices: Sequence[Xpu]) -> bytes:
    """A JSON array with an indentation of two spaces."""
    return msgspec.json.format(msgspec.json.encode(devices), indent=2) + b"\n"


class DiscoveryError(Exception):
    """The devices of a vendor cannot be described. The message names the tool and what is wrong with its output."""


class ToolError(DiscoveryError):
    def __init__(self, tool: str, status: int, output: str) -> None:
        self.output = output  # Text that the tool printed before it ended
        super().__init__(f"{tool} ended with status {status}: {output.strip()[:200]}")


@dataclass(frozen=True, slots=True)
class PciFunction:
    """Four lower-case hexadecimal digits each."""

    vendor: str
    product: str

    @classmethod
    def of(cls, vendor: str, product: str) -> "PciFunction":
        """As sysfs writes them, with or without prefix `0x`."""
        return cls(*(text.strip().lower().removeprefix("0x") for text in (vendor, product)))


class Machine(Protocol):
    """Access to one machine. Every call may do I/O."""

    def pci_functions(self) -> Sequence[PciFunction]: ...

    def locate(self, bus_id: str) -> PciLocation | None:
        """`bus_id`: PCI address in lower case. None if sysfs does not tell the location."""
        ...

    def device_files(self) -> Sequence[str]:
        """Paths of the files directly below /dev."""
        ...

    def ask(self, query: str, card: int | None = None) -> str:
        """Run the tool of a vendor and return what it prints, its error output included.

        `query` is a key of `Vendor.commands`; `card` replaces `{card}` in the command.

        Raises:
            ToolError: The tool is missing, ended with another status than 0, or took too long.
        """
        ...


def topology_of(machine: Machine, bus_id: str) -> XpuTopology:
    """If sysfs does not know the PCI address, only the address is set. `bus_id` as the tool prints it."""
    address = bus_id.lower()
    found = machine.locate(address)
    if found is None:
        return XpuTopology(socket_id=UNKNOWN, node_id=UNKNOWN, bus_id=address)
    return XpuTopology(socket_id=UNKNOWN, node_id=str(found.numa_node), pcie_id=found.root, bus_id=address)


def lines_with(output: str, *texts: str) -> Iterator[list[str]]:
    """The fields, separated by blanks, of each line that contains one of the texts."""
    return (line.split() for line in output.splitlines() if any(text in line for text in texts))


def first_line_with(output: str, text: str) -> list[str]:
    """Empty if no line contains it."""
    for fields in lines_with(output, text):
        return fields
    return []


def field_of(fields: Sequence[str], index: int, what: str) -> str:
    """`index` from 0, or -1 for the last one. `what` is the name of the field's content, for the error.

    Raises:
        DiscoveryError: The line has no such field.
    """
    try:
        return fields[index]
    except IndexError:
        raise DiscoveryError(f"{what} must be field {index} of the line, got {' '.join(fields)!r}") from None


def sum_of_last_fields(output: str, *texts: str) -> int:
    """The sum of the last fields of all lines that contain one of the texts.

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
    devices: Sequence[Xpu] = ()  # Described devices, in the order of the tool
    # Minor of a card whose own command failed -> the error.
    failed: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """Definition of one vendor: how its cards are recognised and described."""

    key: str  # Name of the vendor in logs and metrics
    pci_vendor: str  # PCI vendor number in lower-case hexadecimal digits
    # Query -> command line. `{card}` in a word is replaced by the number of a card.
    commands: Mapping[str, Sequence[str]]
    discover: Callable[[Machine], Found]  # Describes the devices. It may raise DiscoveryError.
    not_cards: frozenset[str] = frozenset()  # PCI product numbers of this vendor that are not accelerators

    def is_present(self, machine: Machine) -> bool:
        return any(
            function.vendor == self.pci_vendor and function.product not in self.not_cards
            for function in machine.pci_functions()
        )
