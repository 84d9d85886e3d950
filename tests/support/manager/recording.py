"""A manager at work on a real log, whose decisions are taken again: `recording`, then `Recorder.again`."""

import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

import httpx
from koord_manager.compose import assemble
from koord_manager.domain.controllers.recommender.settings import RecommenderSettings
from koord_manager.domain.what_if.admission import AdmissionTried
from koord_manager.settings import ManagerSettings
from koordcore.bus.factory import Bus, BusSettings, bootstrap_bus, open_bus
from koordcore.bus.setup.streams import StreamSizes
from koordcore.embedded.nats import NatsServer
from koordcore.events.envelope import AggregateRef, Origin, name_token
from koordcore.events.observation import NodeUsageReported, PodUsage, Usage
from koordcore.service.leader.lease import SoleLeader
from koordcore.service.run import Shell
from koordcore.state import ClusterState
from koordctl.access.folding import fold_to
from koordctl.replay.manager_rerun import ManagerComparison, Question, compare
from support.running_service import running_service
from support.until import DEADLINE_SECONDS, until

GIB = 1 << 30
Json = dict[str, Any]


class Recorder:
    """A manager at work on a log, and agents that report to it."""

    def __init__(self, bus: Bus, shell: Shell[ManagerSettings], client: httpx.AsyncClient) -> None:
        self.bus = bus
        self._shell = shell
        self._client = client

    async def apply(self, *documents: Json, taken: Sequence[str] = ("created", "configured", "unchanged")) -> None:
        """Documents, all of them taken; taken: what may become of them"""
        for document in documents:
            answer = await self._client.post("/v1/apply", content=json.dumps(document))
            assert all(result["action"] in taken for result in answer.json()["results"]), answer.text

    async def report(self, name: str, system_milli: int, pods: Sequence[PodUsage] = ()) -> None:
        """What a node's agent says now."""
        now = self._shell.clock.now().isoformat()
        report = NodeUsageReported(
            updated_at=now,
            report_interval_seconds=60,
            aggregate_duration_seconds=300,
            node_usage=Usage(system_milli, 10 * GIB),
            system_usage=Usage(system_milli, GIB),
            pods=list(pods),
        )
        origin = Origin(causation_id=f"report/{name}/{now}", correlation_id=name, actor="agent/t", occurred_at=now)
        await self.bus.observations.publish(AggregateRef("node", name_token(name)), report, origin)

    async def state(self) -> ClusterState:
        """Everything that the log says."""
        return (await fold_to(self.bus.events, (await self.bus.events.head()).last_seq)).state

    async def until(self, condition: Callable[[ClusterState], bool]) -> None:
        """Wait until the folded log meets the condition."""

        async def holds() -> bool:
            return condition(await self.state())

        await until(holds, every=0.1)

    async def again(
        self,
        chosen: Mapping[str, str] | None = None,
        begin: int = 0,
        *,
        settings: RecommenderSettings | None = None,
        admitting: AdmissionTried | None = None,
    ) -> ManagerComparison:
        """The log decided anew."""
        end, bus = (await self.bus.events.head()).last_seq, self.bus
        asked = Question(begin=begin, end=end, chosen=chosen, settings=settings, admitting=admitting)
        return await compare(bus.events, bus.observations, bus.snapshots, asked, lambda _: None, bus.explanations)


@contextlib.asynccontextmanager
async def recording(server: NatsServer, cluster: str, *, clock: str = "system") -> AsyncGenerator[Recorder]:
    """A manager over a cluster of its own on a server, until the block ends."""
    settings = BusSettings(urls=(server.url,), cluster=cluster)
    sizes = StreamSizes(**dict.fromkeys(StreamSizes.__dataclass_fields__, 16 * 1024 * 1024))
    await bootstrap_bus(settings, sizes=sizes)

    async def compose(shell: Shell[ManagerSettings]) -> None:
        assemble(shell, bus, SoleLeader("manager"))

    async with open_bus(settings) as bus:
        words = ["--log-level=error", f"--cluster={cluster}", "--control-interval=50ms", f"--clock={clock}"]
        async with (
            running_service(ManagerSettings.load(words, {}), compose) as shell,
            httpx.AsyncClient(base_url=shell.http.url, trust_env=False, timeout=DEADLINE_SECONDS) as client,
        ):
            yield Recorder(bus, shell, client)
