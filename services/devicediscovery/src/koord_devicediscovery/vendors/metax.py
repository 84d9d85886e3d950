"""Cards of MetaX, described by `mx-smi`.

Source: runtime spec, 8.4.
"""

import re
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
    sum_of_last_fields,
    topology_of,
    unhealthy,
)

_UUID_FIELD: Final = 5
_NUMBER: Final = re.compile(r"GPU#([0-9]+)", re.ASCII)
_VIRTUAL: Final = "SGPU"
"""Marks the lines of virtual cards."""


def _discover(machine: Machine) -> Found:
    hardware = machine.ask("hwinfo").splitlines()
    models = [line.split() for line in hardware if "model name" in line.lower()]
    if not models:
        return Found()
    model = field_of(models[0], 3, "Model Name")
    capacity = next((line for line in hardware if "memory capacity" in line.lower()), "")
    memory = field_of(capacity.split(), 3, "Memory Capacity").replace("GB", "Gi")
    listed = machine.ask("list")
    devices: list[Xpu] = []
    failed: dict[str, str] = {}
    # A lost card may be missing in either output; the numbers of the others stay.
    for card in sorted({*range(len(models)), *_numbers(listed)}):
        try:
            uuid = field_of(_physical_line(listed, rf"GPU#{card}(?![0-9])"), _UUID_FIELD, "UUID").strip("()")
            bus_id = field_of(_physical_line(machine.ask("card", card), "GPU#"), 2, "PCI address")
            errors = sum_of_last_fields(
                machine.ask("ecc", card), "SRAM Uncorrectable", "DRAM Uncorrectable", "Double Bit ECC"
            )
        except DiscoveryError as error:
            failed[str(card)] = str(error)
            continue
        devices.append(
            Xpu(
                vendor="metax",
                model=model,
                uuid=uuid,
                minor=str(card),
                resources=gpu_resources(memory),
                topology=topology_of(machine, bus_id),
                status=HEALTHY if errors <= 0 else unhealthy("ECC error", f"{errors} uncorrectable memory errors"),
            )
        )
    return Found(devices=devices, failed=failed)


def _numbers(listed: str) -> list[int]:
    """The numbers of the physical cards in `mx-smi --list`."""
    lines = (line for line in listed.splitlines() if _VIRTUAL not in line)
    return [int(number) for line in lines for number in _NUMBER.findall(line)]


def _physical_line(output: str, pattern: str) -> list[str]:
    wanted = re.compile(pattern)
    lines = (line for line in output.splitlines() if wanted.search(line) and _VIRTUAL not in line)
    return next(lines, "").split()


METAX: Final = Vendor(
    key="metax",
    pci_vendor="9999",
    commands={
        "hwinfo": ("mx-smi", "--show-hwinfo"),
        "list": ("mx-smi", "--list"),
        "card": ("mx-smi", "--show-hwinfo", "-i", "{card}"),
        "ecc": ("mx-smi", "--count-ecc", "-i", "{card}"),
    },
    discover=_discover,
)
