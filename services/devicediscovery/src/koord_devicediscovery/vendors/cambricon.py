"""MLU cards of Cambricon, described by `cnmon`.

Source: runtime spec, 8.4.
"""

from typing import Final

from koord_devicediscovery.vendors.vendor import (
    HEALTHY,
    UNKNOWN,
    DiscoveryError,
    Found,
    Machine,
    Vendor,
    Xpu,
    XpuTopology,
    field_of,
    first_line_with,
    gpu_resources,
    lines_with,
    unhealthy,
)


def _discover(machine: Machine) -> Found:
    listed = list(lines_with(machine.ask("list"), "UUID"))
    if not listed:
        return Found()
    model = next((field for fields in listed for field in fields if "MLU" in field), None)
    if model is None:
        raise DiscoveryError("`cnmon -l` must name a model that contains MLU, got none")
    memory = _memory(machine.ask("info"))
    devices: list[Xpu] = []
    failed: dict[str, str] = {}
    for card in range(len(listed)):
        try:
            devices.append(_card(machine.ask("card", card), model, memory, card))
        except DiscoveryError as error:
            failed[str(card)] = str(error)
    return Found(devices=devices, failed=failed)


def _memory(info: str) -> str:
    lines = info.splitlines()
    for number, line in enumerate(lines):
        if "Physical Memory Usage" in line:
            total = next((each for each in lines[number : number + 2] if "Total" in each), "")
            return f"{field_of(total.split(), -2, 'Total of Physical Memory Usage')}Mi"
    raise DiscoveryError("`cnmon info` must have a line with Physical Memory Usage, got none")


def _card(output: str, model: str, memory: str, card: int) -> Xpu:
    device, status = "", HEALTHY
    for fields in lines_with(output, "Device"):
        if fields[:2] != ["Device", ":"]:
            continue
        value = " ".join(fields[2:])
        if value.isdigit():
            device = value
        elif value != "Good":
            status = unhealthy(message=f"cnmon says: {value}")
    if not device:
        raise DiscoveryError(f"`cnmon info -c {card}` must have a line `Device : <number>`, got none")
    domain, bus, function = (_value(output, name) for name in ("Domain ID", "Bus num", "Function"))
    uuid = field_of(first_line_with(output, "UUID"), 2, "UUID")
    return Xpu(
        vendor="cambricon",
        model=model,
        uuid=uuid,
        minor=str(card),
        resources=gpu_resources(memory),
        topology=XpuTopology(
            socket_id=UNKNOWN,
            node_id=_value(output, "NUMA node id"),
            bus_id=f"{domain}:{bus}:{device}.{function}".lower(),
        ),
        status=status,
    )


def _value(output: str, name: str) -> str:
    return field_of(first_line_with(output, name), -1, name)


CAMBRICON: Final = Vendor(
    key="cambricon",
    pci_vendor="cabc",
    commands={
        "list": ("cnmon", "-l"),
        "info": ("cnmon", "info"),
        "card": ("cnmon", "info", "-c", "{card}"),
    },
    discover=_discover,
)
