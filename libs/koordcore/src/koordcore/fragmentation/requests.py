"""CPU and GPU requests of a pod, in the form that the fragmentation measure reads.

Source: gpu-fragmentation spec, 6 (2).
"""

from koordcore.fragmentation.pods import WHOLE_GPU, GpuPod, gpu_pod
from koordcore.protocol import keys
from koordcore.protocol.hardware.device_requests import GPU_TYPE, WHOLE, device_requests
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.resource_names import CPU, GPU_CORE, GPU_MEMORY_RATIO
from koordcore.values.invalid import InvalidInput


def requests_of(pod: Pod) -> GpuPod | None:
    """Return the CPU and GPU requests of a pod for the fragmentation measure.

    None if they are not valid, or if it requests GPU memory in bytes only: the percentage depends on the GPU.
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
    """Return the GPU models that a pod requires by the node label `node.koordinator.sh/gpu-model`; "" for any model.

    If the node selector contains the label, its value is returned. Otherwise it is the list of models in the terms of
    the required node affinity (operator `In`), sorted and joined by "|"; "" if a term contains no models.
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
