"""The buckets of the object limiter: they are forgotten when they count no more."""

from koord_descheduler.domain.jobs.arguments import MigrationControllerArgs
from koord_descheduler.domain.jobs.object_limiter import EvictionBuckets, ObjectLimiter
from koord_descheduler.domain.view.pods import PodView
from support.descheduler.views import pod_view_from_json
from support.reachable import container_sizes

REPLICAS = 10


def pod_of(workload: str, namespace: str = "d") -> PodView:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": workload, "uid": workload, "controller": True}
    metadata = {"name": f"{workload}-0", "namespace": namespace, "uid": f"{workload}-0", "ownerReferences": [owner]}
    return pod_view_from_json({"metadata": metadata, "spec": {"nodeName": "n"}})


def test_workloads_whose_evictions_count_no_more_leave_nothing_behind() -> None:
    args = MigrationControllerArgs()
    limiter = ObjectLimiter(args, EvictionBuckets())
    pause = limiter.memory_seconds / 4

    def evict(number: int) -> None:
        limiter.evicted(pod_of(f"w-{number}"), number * pause, REPLICAS)

    for number in range(10):
        evict(number)
    before = container_sizes(limiter)
    for number in range(10, 100):
        evict(number)
        assert limiter.is_limited(pod_of(f"w-{number}"), number * pause)
    assert container_sizes(limiter) - before == {}
