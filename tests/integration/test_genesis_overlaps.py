"""Genesis of a cluster where another scheduler gave CPUs and devices twice: reported, kept, never made worse."""

import json
from pathlib import Path
from typing import Any

from koord_manager.shell.gateway.api import connect_api
from koord_manager.shell.gateway.genesis import genesis
from koordcore.bus.adapters.memory import MemoryEventLog, MemoryLog
from koordcore.events.envelope import AggregateRef, NewEvent, StoredEvent
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.protocol import keys
from koordcore.service.clock import SystemClock
from koordcore.state.allocation_rules import violations
from koordcore.stories.hardware import NodeHardware
from koordctl.node.hardware import hardware_from_events, hardware_lines
from support.hardware import device_document, topology_document
from support.kubernetes.gateway_world import gateway_world, node, pod
from support.scheduler.devices import CORE, RATIO
from support.scheduler.numa import lsr_pod
from support.scheduler.scheduling import Scheduler, SmallLog

NODE = "node-0"
SHARE = {CORE: "60", RATIO: "60"}


def bound_by_another(name: str, cpuset: str) -> dict[str, Any]:
    """A running pod with CPUs and 60 percent of GPU 0, of a priority that no new pod preempts."""
    found = pod(name, cpu="2", nodeName=NODE, priority=9999)
    found["spec"]["containers"][0]["resources"]["requests"] |= SHARE
    found["metadata"]["labels"] = {keys.QOS_CLASS: "LSR"}
    found["metadata"]["annotations"] = {
        keys.RESOURCE_STATUS: json.dumps({"cpuset": cpuset}),
        keys.DEVICE_ALLOCATED: json.dumps({"gpu": [{"minor": 0, "resources": SHARE}]}),
    }
    found["status"] = {"phase": "Running"}
    return found


async def genesis_of(folder: Path, *objects: dict[str, Any]) -> SmallLog:
    """The log of a genesis from these objects of an API server, with the hardware of the node."""
    fresh = MemoryEventLog(MemoryLog())
    async with gateway_world(folder) as world:
        for each in objects:
            await world.server.apply(each)
        await world.stop()
        api = await connect_api(world.server.kubeconfig(folder / "admin"), qps=0, burst=1)
        try:
            await genesis(
                api, fresh, world.settings.resources, SystemClock(), namespace="koordinator-system", actor="test"
            )
        finally:
            await api.close()
    log = SmallLog()
    head = await fresh.head()
    async for batch in fresh.history(0, head.last_seq):
        for stored in batch:
            assert log.append([NewEvent(stored.ref, dict(stored.headers), stored.body, log.last_seq(stored.ref))])
    for plural, document in (
        ("devices", device_document(NODE, gpus=2)),
        ("noderesourcetopologies", topology_document(NODE, cores=4)),
    ):
        ref = custom_ref(plural, "", NODE)
        log.say(ref.kind, ref.id, CustomObjectObserved(object=document))
    return log


def told_hardware(log: SmallLog) -> NodeHardware:
    """What `koord explain node` reads of the log."""

    def of(kind: str, id_: str) -> list[StoredEvent]:
        return [stored for stored in log.events if stored.ref == AggregateRef(kind, id_)]

    return hardware_from_events(
        NODE,
        spec=of("nodespec", NODE),
        topology=of("customspec", f"noderesourcetopologies={NODE}"),
        device=of("customspec", f"devices={NODE}"),
        ledger=of("node", NODE),
    )


async def test_overlapping_pods_of_another_scheduler_are_reported_kept_and_never_made_worse(tmp_path: Path) -> None:
    amounts = {CORE: "200", RATIO: "200", "koordinator.sh/gpu-memory": "160Gi"}
    machine = node(NODE)
    machine["status"]["capacity"] |= amounts
    machine["status"]["allocatable"] |= amounts
    log = await genesis_of(tmp_path, machine, bound_by_another("one", "0,8"), bound_by_another("two", "8,1"))
    scheduler = Scheduler(log)
    scheduler.run()
    before = violations(scheduler.state.assumed.ledgers.holders(NODE))
    assert {each.subject for each in before} == {"CPU 8", f"{CORE} of gpu 0", f"{RATIO} of gpu 0"}

    for number in range(3):
        log.add_pod(lsr_pod(f"new-{number}", 2, more=SHARE))
    scheduler.run(60.0)

    holders = scheduler.state.assumed.ledgers.holders(NODE)
    assert violations(holders) == before, "the pods of the other scheduler are kept, and nothing joins them"
    (placed,) = [holder.allocation for uid, holder in holders.items() if uid.startswith("new-")]
    assert [each.minor for each in placed.devices] == [1]
    said = "\n".join(hardware_lines(told_hardware(log)))
    assert "conflict: CPU 8" in said, said
    assert "gpu 0: 120 of 100" in said, said
