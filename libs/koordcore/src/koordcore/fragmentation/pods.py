"""Pods as the fragmentation measure sees them, and the typical pods of a workload.

Next module to read: `nodes`. Source: gpu-fragmentation spec, 1, 3, 6 (2).
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from koordcore.protocol import keys
from koordcore.protocol.hardware.device_requests import GPU_TYPE, WHOLE, device_requests
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.resource_names import CPU, GPU_CORE, GPU_MEMORY_RATIO
from koordcore.values.invalid import InvalidInput

WHOLE_GPU: Final = 1000  # GPU milli of one whole GPU


class GpuPod(NamedTuple):
    """The CPU and GPU requests of a pod. Fragmentation does not distinguish pods with equal requests."""

    milli_cpu: int  # Requested milli-cores
    gpu_milli: int  # Requested GPU milli on each GPU, 0..1000
    num_gpu: int  # Number of GPUs
    gpu_spec: str = ""  # Allowed GPU models joined by "|"; empty: any model

    @property
    def is_share(self) -> bool:
        """Return whether the pod uses a part of one GPU."""
        return self.num_gpu == 1 and self.gpu_milli < WHOLE_GPU

    @property
    def total_milli(self) -> int:
        """Return the requested GPU milli on all GPUs together."""
        return self.gpu_milli * self.num_gpu

    def allows(self, model: str) -> bool:
        return not self.gpu_spec or model in self.gpu_spec.split("|")


class TypicalPod(NamedTuple):
    """Requests that many pods of a workload have in common."""

    pod: GpuPod  # The requests
    frequency: float  # Fraction of the pods with these requests, 0..1


def gpu_pod(milli_cpu: int, gpu_milli: int, num_gpu: int, gpu_spec: str = "") -> GpuPod:
    """Return a pod with valid GPU requests. More than 1000 GPU milli are capped to 1000, a whole GPU. A pod without
    GPUs gets 0 GPU milli.

    Args:
        milli_cpu: Requested milli-cores.
        gpu_milli: Requested GPU milli on each GPU.
        gpu_spec: Allowed GPU models joined by "|"; empty: any model.
    """
    return GpuPod(milli_cpu, min(gpu_milli, WHOLE_GPU) if num_gpu else 0, num_gpu, gpu_spec)


def typical_pods(pods: Iterable[GpuPod], threshold_percent: float = 95) -> list[TypicalPod]:
    """Return the most frequent requests that together make up `threshold_percent` of all pods. Pods without GPUs take
    part. If two requests are equally frequent, the larger tuple comes first. `pods`: the workload, one entry for each
    pod. `threshold_percent`: Requests are taken until they cover this part of the pods, in percent.

    Returns:
        Requests by falling frequency. The frequencies of the returned requests sum to 1. Empty for no pods.

    Source: gpu-fragmentation spec, 3.
    """
    counts = Counter(pods)
    wanted = counts.total() * threshold_percent
    taken: list[tuple[GpuPod, int]] = []
    covered = 0
    for pod, count in sorted(counts.items(), key=lambda one: (one[1], one[0]), reverse=True):
        if covered * 100 >= wanted:
            break
        taken.append((pod, count))
        covered += count
    return [TypicalPod(pod, count / covered) for pod, count in taken]


def requests_of(pod: Pod) -> GpuPod | None:
    """Return the CPU and GPU requests of a pod for the fragmentation measure. None if they are not valid, or if it
    requests GPU memory in bytes only: the percentage depends on the GPU.
    """
    try:
        amounts = pod_requests(pod)
        gpu = device_requests(amounts).get(GPU_TYPE)
    except InvalidInput:
        return None
    if gpu is None:
        return gpu_pod(amounts.get(CPU, 0), 0, 0)
    percent = max(gpu.per_device.get(GPU_CORE, 0), gpu.per_device.get(GPU_MEMORY_RATIO, 0))
    if not percent:
        return None
    return gpu_pod(amounts.get(CPU, 0), percent * WHOLE_GPU // WHOLE, gpu.count, gpu_models(pod))


def gpu_models(pod: Pod) -> str:
    """Return the GPU models that a pod requires by the node label `node.koordinator.sh/gpu-model`; "" for any model. If
    the node selector contains the label, its value is returned. Otherwise it is the list of models in the terms of the
    required node affinity (operator `In`), sorted and joined by "|"; "" if a term contains no models.
    """
    selected = pod.spec.node_selector.get(keys.GPU_MODEL)
    if selected:
        return selected
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    models: set[str] = set()
    for term in required.node_selector_terms if required is not None else ():
        named = [each.values for each in term.match_expressions if each.key == keys.GPU_MODEL and each.operator == "In"]
        if not named:
            return ""
        models.update(*named)
    return "|".join(sorted(models))
