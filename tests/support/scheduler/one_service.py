"""The whole scheduler over a log: the service runs in the test's own process, its objects are within reach."""

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace

import httpx
from koord_scheduler.compose import assemble
from koord_scheduler.cycle import Cycle
from koord_scheduler.settings import SchedulerSettings
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.bus.factory import Bus
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, Origin, StoredEvent
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken
from koordcore.events.objects import NodeSpecAdded, PodSpecAdded
from koordcore.events.pod import PodPlaced, PodReleased
from koordcore.ports.eventlog import Appended, EventLog
from koordcore.protocol import keys
from koordcore.protocol.objects import Node, Pod
from koordcore.service.leader.lease import SoleLeader
from koordcore.service.run import Shell
from support.running_service import running_service
from support.scheduler.scheduling import node, pod, with_metadata
from support.until import DEADLINE_SECONDS, until

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass
class Running:
    """A scheduler at work."""

    cycle: Cycle
    shell: Shell[SchedulerSettings]

    async def get(self, path: str) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.shell.http.url, timeout=DEADLINE_SECONDS) as client:
            return await client.get(path)


@contextlib.asynccontextmanager
async def scheduler(bus: Bus, log: EventLog | None = None, *flags: str) -> AsyncGenerator[Running]:
    cycles: list[Cycle] = []

    async def compose(shell: Shell[SchedulerSettings]) -> None:
        used = bus if log is None else replace(bus, events=log)
        cycles.append(assemble(shell, used, SoleLeader("one")))

    settings = SchedulerSettings.load(["--log-level=warning", *flags], {})
    async with running_service(settings, compose) as shell:
        await until(lambda: shell.health.is_ready())
        yield Running(cycles[0], shell)


async def say(log: EventLog, kind: str, id_: str, event: Event) -> StoredEvent:
    ref = AggregateRef(kind, id_)
    last = await log.last_of(ref)
    origin = Origin(
        causation_id=f"{id_}/{last.seq if last else 0}",
        correlation_id=id_,
        actor="test",
        occurred_at="2026-01-01T00:00:00.000000Z",
        traceparent=PARENT,
    )
    outcome = await log.append(CATALOGUE.seal([Draft(ref, event, last.seq if last else 0)], origin))
    assert isinstance(outcome, Appended)
    stored = await log.last_of(ref)
    assert stored is not None
    return stored


async def submit(log: EventLog, *objects: Pod | Node) -> None:
    for one in objects:
        if isinstance(one, Pod):
            await say(log, "podspec", one.metadata.uid, PodSpecAdded(object=one))
        else:
            await say(log, "nodespec", one.metadata.name, NodeSpecAdded(object=one))


def where(log: MemoryLog) -> dict[str, str]:
    """Pod -> node; asserts that nobody is placed twice and that ledgers and pods agree."""
    placed: dict[str, str] = {}
    held: dict[str, str] = {}
    for stored in log.between(0, log.last_seq, None, log.last_seq):
        if stored.ref.id == "bad":
            continue
        match CATALOGUE.read(stored):
            case PodPlaced(node=name):
                assert stored.ref.id not in placed
                placed[stored.ref.id] = name
            case PodReleased():
                del placed[stored.ref.id]
            case NodeResourcesTaken(pods=pods):
                for item in pods:
                    assert item.uid not in held
                    held[item.uid] = stored.ref.id
            case NodeResourcesReturned(pods=uids):
                for uid in uids:
                    del held[uid]
            case _:
                pass
    assert placed == held
    return placed


def one_node_each(members: int) -> list[Node]:
    return [node(f"n{number}", cpu="1") for number in range(members)]


def members_of_gang(members: int, name: str = "g") -> list[Pod]:
    gang = {keys.GANG_NAME: name, keys.GANG_MIN_AVAILABLE: str(members)}
    wanted = (pod(f"m{number}", {"cpu": "1"}) for number in range(members))
    return [with_metadata(each, annotations=gang) for each in wanted]
