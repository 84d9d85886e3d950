"""A plan of two moves, on a log in memory: its facts, its jobs, and the gang for which it makes room."""

from koordcore.events.envelope import AggregateRef
from koordcore.events.migration import MigratedPod, RepackMove, RepackPlanned
from koordcore.events.objects import PodSpecAdded
from koordcore.protocol import keys
from koordcore.protocol.objects import pod_from_json
from support.descheduler.jobs import configuration, job
from support.descheduler.world import World

PLAN = "plan-1"
PODS = ("replica-0", "replica-1")
MEMBER = MigratedPod(namespace="d", name="gang-0", uid="u-gang-0")


def configuration_of_plans() -> bytes:
    """Return a configuration whose limits let both pods of the plan migrate at once."""
    return configuration(
        plugins=False,
        maxMigratingPerNode=0,
        maxMigratingPerWorkload="90%",
        maxUnavailablePerWorkload="90%",
        objectLimiters={},
        evictBurst=10,
    )


async def world_with_plan() -> World:
    """Return a cluster with a plan of two moves off node "b", for a pod that waits."""
    world = World()
    await world.begin()
    await world.replicas(20)
    meta = {"name": MEMBER.name, "namespace": MEMBER.namespace, "uid": MEMBER.uid}
    waiting = {"metadata": meta, "spec": {"containers": [{"name": "c", "image": "i"}]}, "status": {"phase": "Pending"}}
    await world.write(AggregateRef("podspec", MEMBER.uid), PodSpecAdded(object=pod_from_json(waiting)))
    moves = [
        RepackMove(job=f"j-{pod}", pod=MigratedPod(namespace="d", name=pod, uid=f"u-{pod}"), source="b", target="a")
        for pod in PODS
    ]
    plan = RepackPlanned(gang="d/gang", members=[MEMBER], nodes=["b", "c"], moves=moves, gpus=2)
    await world.write(AggregateRef("repack", PLAN), plan)
    for pod in PODS:
        made = job(f"j-{pod}", pod)
        made["metadata"]["annotations"] = {keys.MOVE_PLAN: PLAN}
        await world.custom("PodMigrationJob", made)
    return world
