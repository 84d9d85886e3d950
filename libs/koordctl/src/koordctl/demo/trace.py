"""The nodes and pods of the openb trace as Kubernetes manifests. The module is pure, except for reading the files.

A latency-sensitive pod requests CPU and memory, and uses less than that, following a daily profile. If it requests
whole CPUs, it owns them (QoS class LSR). A best-effort pod requests its amounts as batch resources, so it runs on what
other pods leave unused. The agents report the GPUs of their nodes as devices. A pod requests whole GPUs, or a share of
one. A NodeResourceTopology tells sockets, NUMA zones and cores of each node.

Next module to read: `submitting`.

Source:
    examples/openb/README.md
"""

import copy
import csv
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from koordcore.events.node_ledger import USAGE_PROFILE
from koordcore.protocol import keys
from koordcore.protocol.resource_names import GPU_CORE, GPU_MEMORY_RATIO, RDMA
from koordcore.values.topology import simulated_places

from koordctl.render.output import fail

NAMESPACE: Final = "openb"
GPUS: Final = "koordstream.io/simulated-gpus"
"""Label of a Node with its number of GPUs: the agent that simulates the node reports so many devices."""
RDMA_FUNCTIONS: Final = "koordstream.io/simulated-rdma-functions"
"""Label of a Node: the agent reports an RDMA adapter with so many virtual functions at each PCIe switch with GPUs."""
BATCH_CPU: Final = "kubernetes.io/batch-cpu"
BATCH_MEMORY: Final = "kubernetes.io/batch-memory"
QOS_LABEL: Final = "koordinator.sh/qosClass"
PROD_PRIORITY: Final = 9500
BATCH_PRIORITY: Final = 5500
MAX_PODS_PER_NODE: Final = 110
WHOLE_GPU_MILLI: Final = 1000
NODE_FILE: Final = "openb_node_list_all_node.csv"
POD_FILE: Final = "openb_pod_list_default.csv"

Manifest = dict[str, Any]
TRACE_FOLDER: Final = "examples/openb"


class InvalidTrace(ValueError):
    """A trace file is not valid. The message names the file, the row, the column and the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceNode:
    """One row of the node list. `model` is empty if the node has no GPUs."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePod:
    name: str
    cpu_milli: int  # Requested CPU in milli-cores
    memory_mib: int  # Requested memory in MiB
    gpus: int  # Number of GPUs. A pod with one GPU may request a share of it.
    gpu_milli: int  # Thousandths of each GPU; 1000 is a whole GPU
    models: tuple[str, ...]  # GPU models that the pod accepts; empty accepts every model
    qos: str  # QoS class in the trace: LS, BE, Burstable or Guaranteed


def read_nodes(folder: Path, *, limit: int | None = None) -> list[TraceNode]:
    """Return the nodes of the trace in the order of its file.

    Args:
        limit: Maximum number of nodes, spread evenly over the file so that every kind occurs; None for all.

    Raises:
        InvalidTrace: The file cannot be read or is not valid.
    """
    rows = rows_of(folder / NODE_FILE)
    if limit is not None and limit < len(rows):
        rows = [rows[index * len(rows) // limit] for index in range(limit)]
    return [
        TraceNode(
            name=row.text("sn"),
            cpu_milli=row.number("cpu_milli"),
            memory_mib=row.number("memory_mib"),
            gpus=row.number("gpu"),
            model=row.text("model"),
        )
        for row in rows
    ]


def read_pods(folder: Path, *, limit: int | None = None) -> list[TracePod]:
    """Return the pods of the trace in the order of their arrival: the first `limit`, or all if it is None.

    Raises:
        InvalidTrace: The file cannot be read or is not valid.
    """
    return [
        TracePod(
            name=row.text("name"),
            cpu_milli=row.number("cpu_milli"),
            memory_mib=row.number("memory_mib"),
            gpus=row.number("num_gpu"),
            gpu_milli=row.number("gpu_milli"),
            models=tuple(part for part in row.text("gpu_spec").split("|") if part),
            qos=row.text("qos"),
        )
        for row in rows_of(folder / POD_FILE)[:limit]
    ]


def node_manifest(node: TraceNode, *, rdma_functions: int = 0) -> Manifest:
    """`rdma_functions`: virtual functions of the RDMA adapter at each PCIe switch with GPUs; 0: no adapters."""
    amounts: dict[str, str] = {
        "cpu": f"{node.cpu_milli}m",
        "memory": f"{node.memory_mib}Mi",
        "pods": str(MAX_PODS_PER_NODE),
    }
    labels = {"kubernetes.io/hostname": node.name, "koordstream.io/trace": "openb"}
    if node.gpus:
        labels[GPUS] = str(node.gpus)
        labels[keys.GPU_MODEL] = node.model
        if rdma_functions:
            labels[RDMA_FUNCTIONS] = str(rdma_functions)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def topology_manifest(node: TraceNode) -> Manifest:
    """The NodeResourceTopology of a node: the CPUs that its agent simulates, and the memory in equal parts."""
    places = simulated_places(max(1, node.cpu_milli // 1000))
    zones = sorted({place.node for place in places})
    detail = [{"id": each.cpu, "core": each.core, "socket": each.socket, "node": each.node} for each in places]
    amounts = {"cpu": f"{node.cpu_milli // len(zones)}m", "memory": f"{node.memory_mib // len(zones)}Mi"}
    resources = [
        {"name": name, "capacity": amount, "allocatable": amount, "available": amount}
        for name, amount in amounts.items()
    ]
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": node.name,
            "labels": {keys.MANAGED_BY: keys.MANAGED_BY_KOORDINATOR},
            "annotations": {keys.CPU_TOPOLOGY: json.dumps({"detail": detail}, separators=(",", ":"))},
        },
        "topologyPolicies": ["None"],
        "zones": [{"name": f"node-{zone}", "type": "Node", "resources": resources} for zone in zones],
    }


def pod_manifest(pod: TracePod) -> Manifest:
    is_best_effort = pod.qos == "BE"
    amounts: dict[str, str] = {}
    if is_best_effort:
        amounts[BATCH_CPU] = str(pod.cpu_milli)
        amounts[BATCH_MEMORY] = f"{pod.memory_mib}Mi"
    else:
        amounts["cpu"] = f"{pod.cpu_milli}m"
        if pod.memory_mib:
            amounts["memory"] = f"{pod.memory_mib}Mi"
    percent = str(gpu_percent(pod))
    gpus = {GPU_CORE: percent, GPU_MEMORY_RATIO: percent} if pod.gpus else {}
    requests = {**amounts, **gpus}
    # Extended resources cannot be overcommitted: their limit is their request. Only Guaranteed pods limit the rest.
    limits = requests if is_best_effort or pod.qos == "Guaranteed" else gpus
    resources: Manifest = {"requests": requests, **({"limits": limits} if limits else {})}
    metadata: Manifest = {"name": pod.name, "namespace": NAMESPACE, "labels": {"koordstream.io/trace": "openb"}}
    spec: Manifest = {"containers": [{"name": "main", "image": "trace", "resources": resources}]}
    if is_best_effort:
        metadata["labels"][QOS_LABEL] = "BE"
        spec["priority"] = BATCH_PRIORITY
    else:
        metadata["annotations"] = {USAGE_PROFILE: json.dumps(usage_profile(pod.name))}
        if pod.qos == "LS":
            metadata["labels"][QOS_LABEL] = "LS" if pod.cpu_milli % 1000 else "LSR"
            spec["priority"] = PROD_PRIORITY
    if pod.models:
        spec["affinity"] = _on_models(pod.models)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def with_rdma(manifest: Manifest) -> Manifest:
    """Return a copy with a request for a virtual function of an RDMA adapter under each switch of its GPUs."""
    found = copy.deepcopy(manifest)
    resources = found["spec"]["containers"][0]["resources"]
    for amounts in resources.values():
        amounts[RDMA] = "1"
    found["metadata"].setdefault("annotations", {}).update(
        {
            keys.DEVICE_JOINT_ALLOCATE: '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}',
            keys.DEVICE_ALLOCATE_HINT: '{"rdma":{"vfSelector":{}}}',
        }
    )
    return found


def gpu_percent(pod: TracePod) -> int:
    """The GPU request in percent of one GPU: 100 for each whole GPU, or its share, rounded up."""
    return pod.gpus * 100 if pod.gpus > 1 else -(-pod.gpu_milli // 10)


def usage_profile(name: str) -> Manifest:
    """Return the load profile for simulated agents: how the CPU use of a latency-sensitive pod changes over the day.

    The mean is 30 to 50 % of its request, with a swing of 40 % of the mean. Mean and phase derive from `name`, so two
    runs are alike. Peaks lie within three hours of each other.
    """
    spread = zlib.crc32(name.encode()) / 0xFFFFFFFF
    mean = 0.3 + 0.2 * spread
    return {
        "profile": "diurnal",
        "mean": round(mean, 3),
        "amplitude": round(mean * 0.4, 3),
        "period": "24h",
        "phase": f"{int((spread * 2 - 1) * 5400)}s",
        "memory": round(0.4 + 0.2 * spread, 3),
    }


def _on_models(models: tuple[str, ...]) -> Manifest:
    term = {"matchExpressions": [{"key": keys.GPU_MODEL, "operator": "In", "values": list(models)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


@dataclass(frozen=True, slots=True)
class Row:
    place: str  # File and number of the row, for errors
    columns: dict[str, str]  # Name of the column -> text

    def text(self, column: str) -> str:
        """Raises:
        InvalidTrace: The file does not have the column.
        """
        value = self.columns.get(column)
        if value is None:
            raise InvalidTrace(f"{self.place}: column {column!r} is missing")
        return value

    def number(self, column: str, *, empty: int | None = None) -> int:
        """Return the whole number in a column, or `empty` if the text is empty.

        Raises:
            InvalidTrace: The file does not have the column, or the text is not a whole number.
        """
        text = self.text(column)
        if not text and empty is not None:
            return empty
        if not text.isascii() or not text.isdigit():
            raise InvalidTrace(f"{self.place}: {column} must be a whole number, got {text!r}")
        return int(text)


def rows_of(path: Path) -> list[Row]:
    """The first line of the CSV file names the columns.

    Raises:
        InvalidTrace: The file cannot be read.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return [Row(f"{path.name}, row {number}", dict(row)) for number, row in enumerate(csv.DictReader(file), 2)]
    except OSError as error:
        raise InvalidTrace(f"{path}: {error.strerror}") from error


def find_trace(option: str) -> Path:
    """Return the folder examples/openb of the project, from any folder inside the project.

    If there is none, end the command with an error that names `option`, with which the user can name another folder.
    """
    here = Path.cwd()
    starts = (here, *here.parents, *Path(__file__).resolve().parents)
    found = next((folder / TRACE_FOLDER for folder in starts if (folder / TRACE_FOLDER).is_dir()), None)
    return found or fail(f"no {TRACE_FOLDER} in {here} or above; name the folder with {option}")
