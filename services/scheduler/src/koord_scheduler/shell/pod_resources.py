"""Serves `/metrics/resources`: requests and limits of every pod, as kube-scheduler reports them.

Source:
    scheduler-core spec, 14
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import pod_limits, pod_requests
from koordcore.protocol.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.pods.record import PodRecord
from koord_scheduler.domain.state.state import SchedulerState

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PODS_AT_A_TIME: Final = 200
_ENDED: Final = ("Succeeded", "Failed")
_FAMILIES: Final[tuple[tuple[str, str, Callable[[Pod], Mapping[str, int]]], ...]] = (
    ("kube_pod_resource_request", "Resources requested by pods, by node", pod_requests),
    ("kube_pod_resource_limit", "Resources limit of pods, by node", pod_limits),
)


async def resources_page(state: SchedulerState) -> AsyncIterator[str]:
    """Yield the lines of `/metrics/resources` in pieces, and let other tasks run between them.

    Finished pods, and pods whose amounts are invalid, are left out.
    """
    for name, about, amounts_of in _FAMILIES:
        yield f"# HELP {name} {about}\n# TYPE {name} gauge\n"
        pods = list(state.pods.values())
        for begin in range(0, len(pods), _PODS_AT_A_TIME):
            some = pods[begin : begin + _PODS_AT_A_TIME]
            yield "".join(line for pod in some for line in _lines(name, pod, amounts_of))
            await asyncio.sleep(0)


def _lines(family: str, record: PodRecord, amounts_of: Callable[[Pod], Mapping[str, int]]) -> list[str]:
    pod = record.pod
    if pod is None or pod.status.phase in _ENDED:
        return []
    try:
        amounts = amounts_of(pod)
    except InvalidInput:
        return []
    node = record.bound_node or record.node or pod.spec.node_name
    labels = (
        f'namespace="{record.namespace}",pod="{record.name}",node="{node}",'
        f'scheduler="{pod.spec.scheduler_name}",priority="{record.priority}"'
    )
    return [
        f'{family}{{{labels},resource="{name}",unit="{_unit(name)}"}} {amount / 1000 if name == CPU else amount}\n'
        for name, amount in sorted(amounts.items())
    ]


def _unit(resource: str) -> str:
    if resource == CPU:
        return "cores"
    is_bytes = resource in (MEMORY, EPHEMERAL_STORAGE) or resource.startswith("hugepages-")
    return "bytes" if is_bytes else "integer"
