"""Choose the samples with which each usage model is trained.

Source: agent spec, 8.1, 8.2.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from koordcore.protocol.priority import PriorityBand

NODE: Final = "__node__"
SYSTEM: Final = "__node-sys__"
CLASSES: Final = (*(str(band) for band in PriorityBand), "")
"""Priority classes that have a model; "" stands for pods without class."""


def class_uid(priority_class: str) -> str:
    """Return the UID under which the usage model of a priority class is stored."""
    return f"__node-{priority_class}__"


NODE_UIDS: Final = frozenset({NODE, SYSTEM, *(class_uid(name) for name in CLASSES)})
"""UIDs of models that do not belong to a pod."""


class Used(NamedTuple):
    """A training sample: the 90th percentile of usage in the last minute, in cores and bytes."""

    cpu_cores: float
    memory_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUsed:
    """The 90th percentile of one pod's usage in the last minute in cores and bytes, and its priority class.

    A usage is None if there is no sample.
    """

    uid: str
    priority_class: str
    cpu_cores: float | None
    memory_bytes: float | None


def training_samples(node: Used | None, pods: Iterable[PodUsed]) -> dict[str, Used]:
    """Return UID of a model -> sample, for all models that are trained now: of pods, priority classes, system and node.

    A class without pods gets the sample 0. A pod without a CPU or memory sample is skipped. Without a sample of the
    node, the models of node and system are skipped (D-13).

    Args:
        node: Usage of the node; None without a sample.
        pods: Usage of its pods.

    Source:
        agent spec, 8.2.
    """
    samples: dict[str, Used] = {}
    by_class = dict.fromkeys(CLASSES, Used(0.0, 0.0))
    everything = Used(0.0, 0.0)
    for pod in pods:
        if pod.cpu_cores is None or pod.memory_bytes is None:
            continue
        used = Used(pod.cpu_cores, pod.memory_bytes)
        if pod.uid:
            samples[pod.uid] = used
        name = pod.priority_class if pod.priority_class in by_class else ""
        by_class[name] = _add(by_class[name], used)
        everything = _add(everything, used)
    if node is not None:
        samples[NODE] = node
        samples[SYSTEM] = Used(
            max(node.cpu_cores - everything.cpu_cores, 0.0), max(node.memory_bytes - everything.memory_bytes, 0.0)
        )
    for name, used in by_class.items():
        samples[class_uid(name)] = used
    return samples


def _add(left: Used, right: Used) -> Used:
    return Used(left.cpu_cores + right.cpu_cores, left.memory_bytes + right.memory_bytes)
