"""Convert values of the slow collectors to samples: PSI, CPI, resctrl, cold pages, waiting for CPU and memory.

The shell (`koord_agent.shell.collect.collectors`) reads the values at each collector's own interval.

Source: agent spec, 5, 6.7 to 6.10, 18.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from koord_agent.domain.kernel.numa_usage import hot_page_usage_bytes
from koord_agent.domain.kernel.pressure import Pressure
from koord_agent.domain.metrics.cpi import Counted
from koord_agent.domain.metrics.metric_kinds import CYCLES, INSTRUCTIONS, PSI_PRECISION, Kind
from koord_agent.domain.metrics.series import Sample

_BANDWIDTH: Final = {"mbm_local_bytes": "local", "mbm_total_bytes": "total"}
_OCCUPANCY: Final = "llc_occupancy"


def pressure_samples(
    found: Mapping[str, Pressure], at_ms: int, uid: str, container_id: str | None = None
) -> Iterator[Sample]:
    """Yield samples of PSI avg10 for a pod or one of its containers (agent spec, 6.8).

    The last sample tells whether the kernel measures the CPU pressure `full`: 1 or 0.

    Args:
        found: Resource (cpu, mem, io) -> pressure.
        at_ms: Time in milliseconds.
        uid: UID of the pod.
        container_id: Id of the container; None for the pod itself.
    """
    object_ = (uid,) if container_id is None else (uid, container_id)
    kind = Kind.POD_PSI if container_id is None else Kind.CONTAINER_PSI
    for resource, pressure in found.items():
        for degree, stall in (("some", pressure.some), ("full", pressure.full)):
            yield Sample(kind, at_ms, stall.avg10, (*object_, resource, PSI_PRECISION, degree))
    supported = 1.0 if "cpu" in found and found["cpu"].full_supported else 0.0
    if container_id is None:
        yield Sample(Kind.POD_PSI_CPU_FULL_SUPPORTED, at_ms, supported, uid)
    else:
        yield Sample(Kind.CONTAINER_PSI_CPU_FULL_SUPPORTED, at_ms, supported, (uid, container_id))


def cpi_samples(counted: Counted, at_ms: int, uid: str, container_id: str) -> Iterator[Sample]:
    """Yield samples of the cycles and instructions of one container in one measuring window (agent spec, 6.7)."""
    yield Sample(Kind.CONTAINER_CPI, at_ms, counted.cycles, (uid, container_id, CYCLES))
    yield Sample(Kind.CONTAINER_CPI, at_ms, counted.instructions, (uid, container_id, INSTRUCTIONS))


def resctrl_samples(groups: Mapping[str, Mapping[int, Mapping[str, int]]], at_ms: int) -> Iterator[Sample]:
    """Yield samples of the cache occupancy and bandwidth counters of resctrl groups (agent spec, 6.9).

    Args:
        groups: Group -> cache id -> file name -> counter.
        at_ms: Time in milliseconds.
    """
    for group, caches in groups.items():
        for cache, counters in caches.items():
            if _OCCUPANCY in counters:
                yield Sample(Kind.RESCTRL_LLC, at_ms, counters[_OCCUPANCY], (group, str(cache)))
            for file, name in _BANDWIDTH.items():
                if file in counters:
                    yield Sample(Kind.RESCTRL_MB, at_ms, counters[file], (group, str(cache), name))


_COLD_KINDS: Final = {
    "node": (Kind.NODE_MEMORY_COLD_PAGE, Kind.NODE_MEMORY_WITH_HOT_PAGE),
    "pod": (Kind.POD_MEMORY_COLD_PAGE, Kind.POD_MEMORY_WITH_HOT_PAGE),
    "container": (Kind.CONTAINER_MEMORY_COLD_PAGE, Kind.CONTAINER_MEMORY_WITH_HOT_PAGE),
    "host application": (Kind.HOST_APP_MEMORY_COLD_PAGE, Kind.HOST_APP_MEMORY_WITH_HOT_PAGE),
}


def cold_page_samples(
    level: str, cold_bytes: int, with_page_cache_bytes: float, at_ms: int, of: str = ""
) -> Iterator[Sample]:
    """Yield samples of the cold page cache, and of memory usage without it (agent spec, 6.10).

    Args:
        level: Kind of the measured object: node, pod, container or host application.
        cold_bytes: Bytes of cold page cache.
        with_page_cache_bytes: Memory in use with page cache.
        at_ms: Time in milliseconds.
        of: UID, container id or name of the object; "" for the node.
    """
    cold, hot = _COLD_KINDS[level]
    yield Sample(cold, at_ms, cold_bytes, of)
    yield Sample(hot, at_ms, hot_page_usage_bytes(int(with_page_cache_bytes), cold_bytes), of)
