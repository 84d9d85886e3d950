"""Usage of GPUs by the node, its pods and its containers: sums over their processes.

Source: agent spec, 6.12, 7.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from koordcore.events.observation import GpuUsage

from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.series import Of, Sample, SeriesStore, aggregate

PERCENT: Final = 100


class GpuProcess(NamedTuple):
    """Usage of a GPU by one process: cores in percent, memory in bytes."""

    pid: int
    core_percent: float
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    minor: int
    uuid: str
    memory_bytes: int
    processes: tuple[GpuProcess, ...] = ()
    # Whether the driver tells the usage of cores; without it, `core_percent` of the processes is meaningless.
    has_cores: bool = True


class GpuOwner(NamedTuple):
    """The container of a process: UID of the pod and id of the container."""

    pod: str
    container: str


ReadGpus = Callable[[], Sequence[GpuReading]]
"""Returns the GPUs of a machine with their processes, as of the last reading."""


def gpu_samples(gpus: Iterable[GpuReading], owners: Mapping[int, GpuOwner], at_ms: int) -> Iterator[Sample]:
    """Processes without an owner count for the node only. Unknown usage of cores gives no sample."""
    for gpu in gpus:
        of_gpu: tuple[str, ...] = (str(gpu.minor), gpu.uuid)
        cores, memory = defaultdict[tuple[str, ...], float](float), defaultdict[tuple[str, ...], int](int)
        pods, containers = set[tuple[str, ...]](), set[tuple[str, ...]]()
        for process in gpu.processes:
            objects: list[tuple[str, ...]] = [of_gpu]
            owner = owners.get(process.pid)
            if owner is not None:
                objects += [(owner.pod, *of_gpu), (owner.container, *of_gpu)]
                pods.add(objects[1])
                containers.add(objects[2])
            for of in objects:
                cores[of] += process.core_percent
                memory[of] += process.memory_bytes
        for held, of_cores, of_memory in (
            ({of_gpu}, Kind.NODE_GPU_CORE, Kind.NODE_GPU_MEMORY),
            (pods, Kind.POD_GPU_CORE, Kind.POD_GPU_MEMORY),
            (containers, Kind.CONTAINER_GPU_CORE, Kind.CONTAINER_GPU_MEMORY),
        ):
            for of in sorted(held):
                if gpu.has_cores:
                    yield Sample(of_cores, at_ms, cores[of], of)
                yield Sample(of_memory, at_ms, memory[of], of)


def gpu_usages(
    store: SeriesStore, gpus: Iterable[GpuReading], start_ms: int, now_ms: int, pod: str = ""
) -> tuple[GpuUsage, ...]:
    """Average usage of each GPU in a window, by a pod (UID) or, for "", the whole node.

    GPUs without samples of cores and memory are left out: their usage is unknown.
    """
    core_kind, memory_kind = (
        (Kind.POD_GPU_CORE, Kind.POD_GPU_MEMORY) if pod else (Kind.NODE_GPU_CORE, Kind.NODE_GPU_MEMORY)
    )
    found: list[GpuUsage] = []
    for gpu in sorted(gpus, key=lambda gpu: gpu.minor):
        of: Of = (str(gpu.minor), gpu.uuid) if not pod else (pod, str(gpu.minor), gpu.uuid)
        cores, memory = (store.between(kind, start_ms, now_ms, of) for kind in (core_kind, memory_kind))
        if not len(cores.values) or not len(memory.values):
            continue
        used = aggregate(memory, "avg")
        found.append(
            GpuUsage(
                minor=gpu.minor,
                uuid=gpu.uuid,
                core_percent=int(aggregate(cores, "avg")),
                memory_bytes=int(used),
                memory_percent=int(PERCENT * used / gpu.memory_bytes) if gpu.memory_bytes else 0,
            )
        )
    return tuple(found)
