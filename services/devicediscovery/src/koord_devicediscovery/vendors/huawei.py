"""Ascend cards of Huawei, described by `npu-smi`.

Source: runtime spec, 8.4.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from koordcore.protocol.resource_names import GPU_MEMORY

from koord_devicediscovery.vendors.vendor import (
    HEALTHY,
    DiscoveryError,
    Found,
    Machine,
    ToolError,
    Vendor,
    Xpu,
    field_of,
    first_line_with,
    lines_with,
    sum_of_last_fields,
    topology_of,
    unhealthy,
)

_DEVICE_FILE: Final = re.compile(r"/dev/davinci([0-9]+)")
_COLUMNS: Final = re.compile(r"\s{2,}|\t")
_PHYSICAL: Final = "Chip Phy-ID"
"""Column of `npu-smi info -m` with the n of the file davinci<n> of a chip."""
_LOGICAL: Final = "Chip Logic ID"
"""Column with the place of a chip among those that the tool sees."""
_AI_CPUS: Final = {"Ascend-910B": 0, "Ascend-910B2": 6, "Ascend-910B3": 7, "Ascend-910B4": 7}
"""AI CPUs of the models whose tool need not be asked."""
_WITHOUT_MEMORY_COMMAND: Final = "Command or option is not found"
_MEMORY_OF_310P3: Final = "21527Mi"


def _discover(machine: Machine) -> Found:
    mapping = machine.ask("mapping")
    model = _model(mapping)
    cards = [_card(fields) for fields in lines_with(machine.ask("list"), "NPU ID")]
    minors = sorted(int(match[1]) for path in machine.device_files() if (match := _DEVICE_FILE.fullmatch(path)))
    pairs, failed = _paired(cards, minors, _chips(mapping, cards, minors))
    cores = 8 if model == "Ascend-310P3" else sum_of_last_fields(machine.ask("common"), "Aicore Count")
    devices: list[Xpu] = []
    unmeasured: dict[str, str] = {}
    for card, minor in pairs:
        try:
            memory, ai_cpus = _memory(machine, card), _ai_cpus(machine, model, card)
        except DiscoveryError as error:
            unmeasured[str(minor)] = str(error)
            if len(unmeasured) == len(pairs):
                raise  # not one card, but the tool
            continue
        resources = {
            GPU_MEMORY: memory,
            "huawei.com/npu-cpu": str(ai_cpus),
            "huawei.com/npu-core": str(cores),
            "huawei.com/npu-dvpp": "100",
        }
        try:
            board = machine.ask("board", card)
            bus_id = field_of(first_line_with(board, "PCIe Bus Info"), -1, "PCIe Bus Info")
            faults = sum_of_last_fields(board, "Chip Fault")
        except DiscoveryError as error:
            failed[str(minor)] = str(error)
            continue
        devices.append(
            Xpu(
                vendor="huawei",
                model=model,
                uuid=f"npu-{card}-{minor}",
                minor=str(minor),
                resources=resources,
                topology=topology_of(machine, bus_id),
                status=HEALTHY if faults <= 0 else unhealthy("chip error", f"the board reports {faults} chip faults"),
            )
        )
    return Found(devices=devices, failed=failed | unmeasured)


def _card(fields: list[str]) -> int:
    number = field_of(fields, -1, "NPU ID")
    if not number.isdecimal():
        raise DiscoveryError(f"NPU ID must be a number, got {number!r}")
    return int(number)


def _model(mapping: str) -> str:
    lines = mapping.splitlines()
    fields = lines[1].split() if len(lines) > 1 else []
    if len(fields) < 2:
        raise DiscoveryError(f"the second line of `npu-smi info -m` must end with the model, got {' '.join(fields)!r}")
    return "-".join(fields[-2:])


def _chips(mapping: str, cards: Sequence[int], minors: Sequence[int]) -> dict[int, list[int]]:
    """NPU ID -> numbers of the files davinci<n> of its chips, from `npu-smi info -m`.

    A physical id is this number. Logical ids are consecutive also if the files are not: the k-th one belongs to the
    k-th file, if there are as many.

    Empty if cards and files have to be paired by their order: no column has numbers, or the logical ids tell nothing,
    because the table is not complete and no card has a second chip. Then each card has one file.
    """
    chips = _table(mapping, _PHYSICAL)
    if chips:
        return chips
    chips = _table(mapping, _LOGICAL)
    numbers = sorted(number for each in chips.values() for number in each)
    if len(numbers) == len(minors) and all(card in chips for card in cards):
        files = dict(zip(numbers, minors, strict=True))
        return {card: [files[number] for number in each] for card, each in chips.items()}
    has_one_chip = all(len(each) == 1 for each in chips.values())
    return {} if has_one_chip and len(minors) >= len(cards) else chips


def _table(mapping: str, column: str) -> dict[int, list[int]]:
    """NPU ID -> numbers of its chips in a column. Rows without a number, such as that of an MCU, are left out."""
    header, *rows = (
        [field for field in _COLUMNS.split(line.strip()) if field] for line in mapping.splitlines() or [""]
    )
    found: dict[int, list[int]] = {}
    place = header.index(column) if column in header else None
    if place is None:
        return found
    for row in rows:
        if len(row) > place and row[0].isdecimal() and row[place].isdecimal():
            found.setdefault(int(row[0]), []).append(int(row[place]))
    return found


def _paired(
    cards: Sequence[int], minors: Sequence[int], chips: Mapping[int, Sequence[int]]
) -> tuple[list[tuple[int, int]], dict[str, str]]:
    """The cards (NPU IDs) with the numbers n of their device files, and number -> why its card cannot be described.

    A card has the file of its first chip. Without known chips, cards and files are paired in their order, files by
    number.

    Raises:
        DiscoveryError: No chip is known, and there are fewer files than cards.
    """
    if not chips:
        if len(minors) < len(cards):
            raise DiscoveryError(f"npu-smi lists {len(cards)} cards, but /dev has {len(minors)} files davinci<n>")
        return list(zip(cards, minors, strict=False)), {}
    pairs: list[tuple[int, int]] = []
    failed: dict[str, str] = {}
    for card in cards:
        if card not in chips:
            taken = {number for each in chips.values() for number in each}
            why = f"`npu-smi info -m` must have a row for NPU {card}, which it lists, got none"
            failed.update({str(minor): why for minor in minors if minor not in taken})
        elif chips[card][0] not in minors:
            failed[str(chips[card][0])] = f"NPU {card} has no file /dev/davinci{chips[card][0]}"
        else:
            pairs.append((card, chips[card][0]))
    return pairs, failed


def _memory(machine: Machine, card: int) -> str:
    try:
        output = machine.ask("memory", card)
    except ToolError as error:
        if _WITHOUT_MEMORY_COMMAND in error.output:
            return _MEMORY_OF_310P3
        raise
    return f"{sum_of_last_fields(output, 'DDR Capacity', 'HBM Capacity')}Mi"


def _ai_cpus(machine: Machine, model: str, card: int) -> int:
    known = _AI_CPUS.get(model)
    return sum_of_last_fields(machine.ask("cpu_num_cfg", card), "AI") if known is None else known


HUAWEI: Final = Vendor(
    key="huawei",
    pci_vendor="19e5",
    not_cards=frozenset(("1710", "1711")),  # bridges of servers of the same maker
    commands={
        "mapping": ("npu-smi", "info", "-m"),
        "list": ("npu-smi", "info", "-l"),
        "common": ("npu-smi", "info", "-t", "common", "-i", "0"),
        "memory": ("npu-smi", "info", "-t", "memory", "-i", "{card}"),
        "cpu_num_cfg": ("npu-smi", "info", "-t", "cpu-num-cfg", "-i", "{card}"),
        "board": ("npu-smi", "info", "-t", "board", "-i", "{card}"),
    },
    discover=_discover,
)
