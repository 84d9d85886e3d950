"""Kunlun cards of Baidu, described by `xpu_smi`. The entries of the file name the vendor `kunlun`.

Source: runtime spec, 8.4.
"""

from typing import Final

from koord_devicediscovery.vendors.vendor import (
    HEALTHY,
    DiscoveryError,
    Found,
    Machine,
    Vendor,
    Xpu,
    field_of,
    gpu_resources,
    topology_of,
)

_MEMORY_FIELD: Final = 18
_MODEL_FIELD: Final = 21


def _discover(machine: Machine) -> Found:
    listed = machine.ask("list")
    count = listed.count("\n")
    if not count:
        return Found()
    first = listed.splitlines()[0].split()
    model, memory = field_of(first, _MODEL_FIELD, "model"), f"{field_of(first, _MEMORY_FIELD, 'memory')}Mi"
    devices: list[Xpu] = []
    failed: dict[str, str] = {}
    for card in range(count):
        try:
            bus_id = field_of(machine.ask("card", card).split(), 0, "PCI address")
        except DiscoveryError as error:
            failed[str(card)] = str(error)
            continue
        devices.append(
            Xpu(
                vendor="kunlun",
                model=model,
                uuid=f"xpu-{card}",
                minor=str(card),
                resources=gpu_resources(memory),
                topology=topology_of(machine, bus_id),
                status=HEALTHY,
            )
        )
    return Found(devices=devices, failed=failed)


KUNLUN: Final = Vendor(
    key="baidu",
    pci_vendor="1d22",
    commands={"list": ("xpu_smi", "-m"), "card": ("xpu_smi", "-m", "-d", "/dev/xpu{card}")},
    discover=_discover,
)
