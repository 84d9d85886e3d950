"""The openb traces as nodes and pods of the fragmentation measure.

Next module to read: `gpu_run`.

Source: gpu-fragmentation spec, 5.1; examples/openb/README.md.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from koordcore.fragmentation.nodes import NodeGpus
from koordcore.fragmentation.pods import WHOLE_GPU, GpuPod, gpu_pod

from koordctl.demo.trace import rows_of

NODE_FILE: Final = "openb_node_list_gpu_node.csv"
_POD_FILE: Final = "openb_pod_list_{}.csv"
WORKLOADS: Final = (
    "default",
    *("cpu050", "cpu100", "cpu200", "cpu250"),
    *("gpushare40", "gpushare60", "gpushare80", "gpushare100"),
    *("gpuspec10", "gpuspec20", "gpuspec25", "gpuspec33"),
    *("multigpu20", "multigpu30", "multigpu40", "multigpu50"),
)


@dataclass(frozen=True, slots=True)
class ArrivingPod:
    """One pod of a workload of the openb traces.

    Attributes:
        name: Name of the pod.
        pod: Its CPU and GPU requests.
        memory_mib: Its memory request in MiB.
    """

    name: str
    pod: GpuPod
    memory_mib: int


@dataclass(frozen=True, slots=True)
class GpuTrace:
    """The nodes with GPUs and the pods of one workload of the openb traces.

    Attributes:
        nodes: The nodes, empty, in the order of the file.
        memory_mib: Memory of each node in MiB.
        pods: The pods, ordered by name.
    """

    nodes: tuple[NodeGpus, ...]
    memory_mib: tuple[int, ...]
    pods: tuple[ArrivingPod, ...]

    @property
    def capacity(self) -> int:
        """Return the sum of the GPU milli of all nodes; a GPU has 1000."""
        return sum(sum(node.gpu_milli_left) for node in self.nodes)


def read_trace(folder: Path, workload: str) -> GpuTrace:
    """Return the nodes with GPUs, and the pods of one workload.

    Args:
        folder: Folder with the files of the traces.
        workload: One of `WORKLOADS`.

    Raises:
        InvalidTrace: A file cannot be read or is not valid.
    """
    machines = rows_of(folder / NODE_FILE)
    pods = [
        ArrivingPod(
            name=row.text("name"),
            pod=gpu_pod(
                row.number("cpu_milli"),
                row.number("gpu_milli", empty=0),
                row.number("num_gpu"),
                # The lists with more multi-GPU pods have no such column.
                row.columns.get("gpu_spec") or "",
            ),
            memory_mib=row.number("memory_mib"),
        )
        for row in rows_of(folder / _POD_FILE.format(workload))
    ]
    return GpuTrace(
        nodes=tuple(
            NodeGpus(row.number("cpu_milli"), (WHOLE_GPU,) * row.number("gpu"), row.text("model")) for row in machines
        ),
        memory_mib=tuple(row.number("memory_mib") for row in machines),
        pods=tuple(sorted(pods, key=lambda each: each.name)),
    )
