"""Workloads as the descheduler reads them: the number of replicas, and the owners of the pods."""

from collections.abc import Mapping
from dataclasses import dataclass

from koord_descheduler.domain.view.pods import PodView


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """A workload that controls pods directly, or through ReplicaSets.

    Attributes:
        replicas: Number of replicas that the workload should have.
        owners: Uids of the owners of its pods. For a Deployment, these are all its ReplicaSets.

    Source:
        descheduler spec, 7.8
    """

    replicas: int
    owners: tuple[str, ...]


def replicas_of(pod: PodView | None, workloads: Mapping[str, WorkloadView]) -> int | None:
    """Return the number of replicas that a pod's workload should have; None if there is no pod or no known workload.

    Args:
        pod: The pod.
        workloads: Uid of a controller -> its workload.
    """
    controller = None if pod is None else pod.controller
    workload = None if controller is None else workloads.get(controller.uid)
    return None if workload is None else workload.replicas
