"""The hardware of a node now: the desired state and the facts after it give what the whole ledger gives."""

from koordcore.bus.adapters.memory import MemoryDesiredStore, MemoryEventLog, MemoryLog
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, Origin, StoredEvent
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken, PodOnNode
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved, custom_ref
from koordcore.ports.desired import DesiredNode
from koordcore.stories.hardware import NodeHardware
from koordcore.values import codec
from koordcore.values.allocation import AllocatedDevice, Allocation
from koordctl.node.hardware import hardware_now
from support.hardware import device_document, topology_document

LEDGER = AggregateRef("node", "n1")


class CountingLog(MemoryEventLog):
    """A log that counts the events of ledgers that were read."""

    read = 0

    async def read_aggregate(self, ref: AggregateRef, *, after: int = 0) -> list[StoredEvent]:
        """See `EventLog.read_aggregate`."""
        found = await super().read_aggregate(ref, after=after)
        self.read += len(found) if ref == LEDGER else 0
        return found


def holder(number: int) -> PodOnNode:
    held = AllocatedDevice(type="gpu", minor=number, amounts={"koordinator.sh/gpu-memory-ratio": 100})
    return PodOnNode(
        uid=f"u{number}", namespace="default", name=f"p{number}", requests={}, qos="LS", kube_qos="Burstable",
        priority_class="koord-prod", allocation=Allocation(devices=(held,)),
    )  # fmt: skip


async def say(log: MemoryEventLog, ref: AggregateRef, event: Event) -> int:
    last = await log.last_of(ref)
    draft = Draft(ref, event, 0 if last is None else last.seq)
    origin = Origin(
        causation_id=f"cause-{log.log.last_seq}", correlation_id="c", actor="test", occurred_at="2026-01-01T00:00:00Z"
    )
    await log.append(CATALOGUE.seal([draft], origin))
    stored = await log.last_of(ref)
    assert stored is not None
    return stored.seq


async def test_only_the_facts_after_the_desired_state_are_read() -> None:
    log, store = CountingLog(MemoryLog()), MemoryDesiredStore()
    topologies = custom_ref("noderesourcetopologies", "", "n1")
    await say(log, topologies, CustomObjectObserved(object=topology_document("n1")))
    await say(log, custom_ref("devices", "", "n1"), CustomObjectObserved(object=device_document("n1", gpus=4)))
    seqs = [await say(log, LEDGER, NodeResourcesTaken(pods=[holder(number)])) for number in range(3)]
    desired = DesiredNode(node="n1", pods=[holder(0), holder(1), holder(2)], as_of={"node": seqs[-1]})
    await say(log, LEDGER, NodeResourcesReturned(pods=["u1"]))
    await say(log, LEDGER, NodeResourcesTaken(pods=[holder(3)]))

    whole = await hardware_now(log, store, "n1")
    assert [owner.uid for owner in whole.owners] == ["u0", "u2", "u3"]
    assert log.read == 5
    await store.put(desired)
    assert await hardware_now(log, store, "n1") == whole
    assert log.read == 5 + 2

    await say(log, topologies, CustomObjectDeleted(kind="NodeResourceTopology", name="n1"))
    assert not any(zone.cores for zone in (await hardware_now(log, store, "n1")).zones)


async def test_the_answer_of_the_projector_has_the_same_form() -> None:
    log, store = MemoryEventLog(MemoryLog()), MemoryDesiredStore()
    await say(log, custom_ref("devices", "", "n1"), CustomObjectObserved(object=device_document("n1", gpus=4)))
    await say(log, LEDGER, NodeResourcesTaken(pods=[holder(1)]))
    found = await hardware_now(log, store, "n1")
    assert codec.decode(codec.encode(found), NodeHardware) == found
