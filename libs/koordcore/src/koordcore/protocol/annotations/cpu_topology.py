"""Annotations of a NodeResourceTopology about its CPUs: where each CPU is, and the CPUs that the kubelet gave to pods.

Source: scheduler-fine-grained spec, 1.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from koordcore.protocol import keys, lenient_json
from koordcore.values.invalid import InvalidInput
from koordcore.values.topology import CpuPlace

HIGHEST_CPU: Final = 16_383
"""Twice as many CPUs as Linux supports. Limits bound the work that one document can cause."""
HIGHEST_ZONE: Final = 63
HIGHEST_CORE: Final = (1 << 16) - 1
HIGHEST_SOCKET: Final = 255


class _Detail(msgspec.Struct, frozen=True):
    id: int
    core: int
    socket: int
    node: int


class _CpuTopology(msgspec.Struct, frozen=True):
    detail: list[_Detail] | None = None


class KubeletCpus(msgspec.Struct, frozen=True):
    """CPUs that the kubelet gave to one pod: an entry in the annotation `pod-cpu-allocs` of a NodeResourceTopology.

    Attributes:
        namespace: Namespace of the pod.
        name: Name of the pod.
        uid: Uid of the pod.
        cpuset: CPUs of the pod as a Linux CPU list.
        managed_by_kubelet: Whether the kubelet's CPU manager gave them.
    """

    namespace: str = ""
    name: str = ""
    uid: str = ""
    cpuset: str = ""
    managed_by_kubelet: bool = msgspec.field(default=False, name="managedByKubelet")


@lru_cache(maxsize=256)
def parse_cpu_topology(text: str) -> tuple[CpuPlace, ...]:
    """Return the CPUs that the annotation `cpu-topology` of a NodeResourceTopology lists, ascending; maybe empty.

    Core ids in the annotation repeat between sockets. So the core id of the result is `socket << 16 | core`.

    Args:
        text: Text of the annotation.

    Raises:
        InvalidInput: The JSON is malformed, a CPU occurs twice, or an id is out of range.

    Source: scheduler-fine-grained spec, 1.1.
    """
    detail = lenient_json.decode(text, _CpuTopology).detail or [] if text else []
    places: dict[int, CpuPlace] = {}
    for index, each in enumerate(detail):
        limits = (
            ("id", each.id, HIGHEST_CPU),
            ("core", each.core, HIGHEST_CORE),
            ("socket", each.socket, HIGHEST_SOCKET),
            ("node", each.node, HIGHEST_ZONE),
        )
        for field, value, highest in limits:
            if not 0 <= value <= highest:
                raise InvalidInput(f"an integer from 0 to {highest}", value, f"detail[{index}].{field}")
        if each.id in places:
            raise InvalidInput("a CPU that is stated once", each.id, f"detail[{index}].id")
        core = each.socket << 16 | each.core
        places[each.id] = CpuPlace(cpu=each.id, core=core, socket=each.socket, node=each.node)
    return tuple(places[cpu] for cpu in sorted(places))


def parse_kubelet_cpus(annotations: Mapping[str, str]) -> list[KubeletCpus]:
    """Return the CPUs that the kubelet gave to pods, from the annotation `pod-cpu-allocs`; empty if it is absent.

    Raises:
        InvalidInput: The annotation is not a JSON list of pods with their CPUs.
    """
    text = annotations.get(keys.POD_CPU_ALLOCS)
    entries = lenient_json.parse_json(text) if text else None
    return [] if entries is None else lenient_json.convert(entries, list[KubeletCpus])
