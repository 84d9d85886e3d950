"""The nodes to simulate, and their file: a Kubernetes List, or one short JSON object per line."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from koordcore.protocol.hardware.devices import HIGHEST_MINOR
from koordcore.protocol.keys import GPU_MODEL
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import parse_milli, parse_value

from koord_agent.domain.kernel.cgroup_layout import Driver

GPUS: Final = "koordstream.io/simulated-gpus"
"""Label of a Node with the number of its GPUs. The label of their model is Koordinator's."""
RDMA_FUNCTIONS: Final = "koordstream.io/simulated-rdma-functions"
"""Label of a Node with the number of virtual functions of the RDMA adapter at each of its PCIe switches with GPUs."""
MOST_RDMA_FUNCTIONS: Final = 7
"""Functions of one PCI device besides the adapter itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedNode:
    name: str
    cpu_milli: int
    memory_bytes: int
    gpus: int = 0
    gpu_model: str = ""  # Model of the GPUs; "" means unknown
    gpu_memory_bytes: int = 16 << 30
    rdma_functions: int = 0  # Virtual functions of the RDMA adapter at each PCIe switch with GPUs; 0: no adapters
    driver: Driver = Driver.SYSTEMD


class _Line(msgspec.Struct, kw_only=True):
    node: str
    cpu_milli: int
    memory_bytes: int


def read_nodes(file: Path) -> list[SimulatedNode]:
    """From a `List` of Node objects, or lines with node, cpu_milli and memory_bytes.

    Raises:
        InvalidInput: An entry is invalid. The message names the line or object.
        OSError: The file cannot be read.
    """
    data = file.read_bytes()
    try:
        whole: object = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return _of_lines(data)
    if isinstance(whole, dict) and "items" in whole:
        return _of_list(cast("dict[str, Any]", whole))
    return _of_lines(data)


def shard_of(nodes: Iterable[SimulatedNode], shard: str) -> list[SimulatedNode]:
    """The nodes of one of several processes: `k/n` takes every n-th node, beginning with the k-th, counted from 1.

    Raises:
        InvalidInput: k is larger than n.
    """
    k, n = (int(part) for part in shard.split("/"))
    if k > n:
        raise InvalidInput("k/n with k <= n", shard, "shard")
    return [node for index, node in enumerate(nodes) if index % n == k - 1]


def _of_list(document: dict[str, Any]) -> list[SimulatedNode]:
    nodes: list[SimulatedNode] = []
    for index, item in enumerate(document["items"]):
        try:
            name: str = item["metadata"]["name"]
            capacity: dict[str, str] = item["status"]["capacity"]
            cpu_milli, memory_bytes = parse_milli(capacity["cpu"]), parse_value(capacity["memory"])
        except (KeyError, TypeError) as error:
            raise InvalidInput(
                "a Node with a name and a capacity of cpu and memory", item, f"items[{index}]"
            ) from error
        nodes.append(
            SimulatedNode(
                name=name,
                cpu_milli=cpu_milli,
                memory_bytes=memory_bytes,
                **_devices(item["metadata"].get("labels") or {}),
            )
        )
    return nodes


def _devices(labels: dict[str, str]) -> dict[str, Any]:
    """A node without the label of GPUs has no devices.

    Raises:
        InvalidInput: A number is not a whole number, or too large.
    """
    if GPUS not in labels:
        return {}
    return {
        "gpus": _number(labels, GPUS, HIGHEST_MINOR + 1, "a number of GPUs"),
        "gpu_model": labels.get(GPU_MODEL, ""),
        "rdma_functions": _number(labels, RDMA_FUNCTIONS, MOST_RDMA_FUNCTIONS, "a number of virtual functions"),
    }


def _number(labels: dict[str, str], label: str, most: int, what: str) -> int:
    text = labels.get(label, "0")
    if not text.isdecimal() or int(text) > most:
        raise InvalidInput(f"{what} up to {most}", text, label)
    return int(text)


def _of_lines(data: bytes) -> list[SimulatedNode]:
    nodes: list[SimulatedNode] = []
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            entry = msgspec.json.decode(line, type=_Line)
        except msgspec.DecodeError as error:
            raise InvalidInput(
                f"a JSON object with node, cpu_milli and memory_bytes: {error}",
                line.decode(errors="replace"),
                f"line {number}",
            ) from error
        nodes.append(SimulatedNode(name=entry.node, cpu_milli=entry.cpu_milli, memory_bytes=entry.memory_bytes))
    return nodes
