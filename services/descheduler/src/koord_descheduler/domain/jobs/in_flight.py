"""Migration jobs in flight, counted as the limits need them.

Source:
    descheduler spec, 7.3, 9.4 (1)
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from koord_descheduler.domain.jobs.job import MigrationJob
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.pods import PodView

JOB_EXISTS: Final = "migration_job_exists"
"""Code of a pod, or of a job, that waits because another job of the pod is in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInFlight:
    """The entry by which limits count a migration job that has not finished."""

    name: str
    namespace: str
    pod_name: str
    pod_uid: str = ""  # Uid of its pod; "" if there is no such pod
    node: str = ""  # Node of the pod; "" if it has none
    controller: str = ""  # Uid of the controller of the pod; "" if it has none


@dataclass(slots=True)
class JobsInFlight:
    """The jobs in phase "", Pending or Running, with the counts that the limits ask for (descheduler spec, 7.3)."""

    _jobs: dict[str, JobInFlight] = field(default_factory=dict[str, JobInFlight])
    _by_uid: Counter[str] = field(default_factory=Counter[str])
    _by_key: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    _by_namespace: Counter[str] = field(default_factory=Counter[str])
    _on_node: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    _of_controller: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])

    def add(self, job: JobInFlight) -> None:
        """Count a job. A job of the same name is replaced."""
        self.drop(job.name)
        self._jobs[job.name] = job
        self._count(job, 1)

    def replace(self, jobs: Iterable[JobInFlight]) -> None:
        wanted = {job.name: job for job in jobs}
        for name in [name for name, job in self._jobs.items() if wanted.get(name) != job]:
            self.drop(name)
        for name, job in wanted.items():
            if name not in self._jobs:
                self.add(job)

    def drop(self, name: str) -> None:
        """Stop counting a job. No-op if it is not in flight."""
        job = self._jobs.pop(name, None)
        if job is not None:
            self._count(job, -1)

    def has(self, uid: str, namespace: str, name: str) -> bool:
        """Whether a pod has a job, by its uid, or by namespace and name."""
        return bool(self._by_uid[uid]) or bool(self._by_key[namespace, name])

    def others(self, uid: str) -> int:
        """Number of jobs in flight, without those of the pod `uid`."""
        return len(self._jobs) - self._by_uid[uid]

    def others_in(self, namespace: str, uid: str) -> int:
        """Number of jobs in a namespace of pods other than `uid`, which is a pod of the namespace."""
        return self._by_namespace[namespace] - self._by_uid[uid]

    def others_on(self, node: str, uid: str) -> int:
        """Number of pods on a node, other than `uid`, that have a job."""
        return len(self._on_node.get(node, _NONE).keys() - {uid})

    def others_of(self, controller: str, uid: str) -> set[str]:
        """Uids of the pods of a controller, other than `uid`, that have a job."""
        return self._of_controller.get(controller, _NONE).keys() - {uid}

    def _count(self, job: JobInFlight, change: int) -> None:
        _add(self._by_key, (job.namespace, job.pod_name), change)
        _add(self._by_namespace, job.namespace, change)
        if job.pod_uid:
            _add(self._by_uid, job.pod_uid, change)
            if job.node:
                _add(self._on_node.setdefault(job.node, Counter()), job.pod_uid, change)
            if job.controller:
                _add(self._of_controller.setdefault(job.controller, Counter()), job.pod_uid, change)


_NONE: Counter[str] = Counter()
K = TypeVar("K")


def _add(counts: Counter[K], key: K, change: int) -> None:
    """Change a count, and drop it if it becomes zero."""
    counts[key] += change
    if not counts[key]:
        del counts[key]


def job_of_pod(name: str, pod: PodView) -> JobInFlight:
    return JobInFlight(
        name=name,
        namespace=pod.namespace,
        pod_name=pod.name,
        pod_uid=pod.uid,
        node=pod.node,
        controller="" if pod.controller is None else pod.controller.uid,
    )


def pod_of(job: MigrationJob, cluster: ClusterView) -> PodView | None:
    """The pod of a job; None if it does not exist, or if another pod has its name now."""
    if job.pod is None:
        return None
    if job.pod.uid:
        return cluster.pod_by_uid.get(job.pod.uid)
    return cluster.pod_by_key.get(job.pod.key)


def in_flight(job: MigrationJob, cluster: ClusterView) -> JobInFlight:
    pod, reference = pod_of(job, cluster), job.pod
    return JobInFlight(
        name=job.name,
        namespace="" if reference is None else reference.namespace,
        pod_name="" if reference is None else reference.name,
        pod_uid=pod.uid if pod is not None else "" if reference is None else reference.uid,
        node="" if pod is None else pod.node,
        controller="" if pod is None or pod.controller is None else pod.controller.uid,
    )


def counted_jobs(jobs: Iterable[MigrationJob], evictions: Iterable[str], cluster: ClusterView) -> Iterator[JobInFlight]:
    """The jobs that have not ended. A requested eviction without a job counts as a job.

    `evictions`: uids of pods whose eviction was requested and has neither succeeded nor failed.
    """
    with_job: set[str] = set()
    for job in jobs:
        if job.is_in_flight:
            yield in_flight(job, cluster)
            if job.pod is not None:
                with_job.add(job.pod.uid)
    pods = cluster.pod_by_uid
    yield from (job_of_pod(uid, pods[uid]) for uid in evictions if uid in pods and uid not in with_job)


def migrating_pods(jobs: Iterable[MigrationJob], builder: ViewBuilder) -> Iterator[str]:
    for job in jobs:
        if job.is_in_flight and job.pod is not None:
            found = None if job.pod.uid else builder.pod_named(job.pod.namespace, job.pod.name)
            yield job.pod.uid if found is None else found.uid
