"""Workloads as the descheduler reads them: the number of replicas, and the owners of the pods."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """A workload that controls pods directly, or through ReplicaSets.

    Attributes:
        replicas: Replicas that it should have.
        owners: Uids of the owners of its pods. A Deployment has those of all its ReplicaSets.

    Source:
        descheduler spec, 7.8
    """

    replicas: int
    owners: tuple[str, ...]
