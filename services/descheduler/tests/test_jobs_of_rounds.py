"""A pod that migrates does not count on its node any more, though it still runs there."""

import json
from typing import Any

from koordcore.events.descheduling import RoundDecided
from koordcore.events.envelope import AggregateRef
from koordcore.events.objects import NodeSpecAdded, PodSpecAdded
from koordcore.protocol import keys
from koordcore.protocol.objects import node_from_json, pod_from_json
from koordcore.stories.modifications import KINDS, AuditReader
from koordcore.values import codec
from support.descheduler.world import World
from support.until import until

CONFIGURATION = codec.encode(
    {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "deschedulingInterval": "20ms",
        "profiles": [
            {
                "name": "p",
                "plugins": {"deschedule": {"enabled": [{"name": "RemovePodsViolatingNodeReservation"}]}},
                "pluginConfig": [{"name": "MigrationController", "args": {"maxMigratingPerNode": 0}}],
            }
        ],
    }
)


async def test_later_rounds_do_not_move_more_pods_while_a_job_waits_for_its_reservation() -> None:
    world = World()
    reservation = {keys.NODE_RESERVATION: json.dumps({"resources": {"cpu": "1"}})}
    for name, annotations in (("a", reservation), ("b", {})):
        status = {"allocatable": {"cpu": "4", "memory": "8Gi"}}
        node = node_from_json({"metadata": {"name": name, "annotations": annotations}, "spec": {}, "status": status})
        await world.write(AggregateRef("nodespec", name), NodeSpecAdded(object=node))
    for name, cpu in (("large", "2"), ("small", "1500m")):
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": True}
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        for index, request in enumerate((cpu, "10m", "10m")):
            pod: dict[str, Any] = {
                "metadata": {
                    "name": f"{name}-{index}",
                    "namespace": "d",
                    "uid": f"{name}-{index}",
                    "ownerReferences": [owner],
                },
                "spec": {
                    "nodeName": "b" if index else "a",
                    "schedulerName": "koord-scheduler",
                    "priority": 9200 if name == "large" else 9100,
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": request}}}],
                },
                "status": ready,
            }
            await world.write(AggregateRef("podspec", f"{name}-{index}"), PodSpecAdded(object=pod_from_json(pod)))
        metadata = {"namespace": "d", "name": name, "uid": name}
        await world.custom("ReplicaSet", {"kind": "ReplicaSet", "metadata": metadata, "spec": {"replicas": 3}})

    async with world.service(CONFIGURATION) as (_, rounds):
        await until(lambda: rounds.done >= 5)
    decided = [each for each in await world.facts("descheduling") if isinstance(each, RoundDecided)]
    assert [move.name for each in decided for move in each.moves] == ["small-0"]
    reader = AuditReader()
    records = [each for stored in await world.stored(*KINDS) for each in reader.read(stored) if each.job]
    assert [(each.action, each.decision) for each in records[:2]] == [("job_create", "allowed"), ("job_create", "done")]
    (move,) = (move for each in decided for move in each.moves)
    decided_by = (move.round, move.profile, move.plugin)
    assert {(each.round, each.profile, each.plugin) for each in records[:2]} == {decided_by}
    assert {each.job for each in records} == {move.job}
    assert records[1].job_uid
