"""A recorded log decided anew by the manager: the same configuration gives the same, another what its formula says."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import httpx
import pytest
from koord_manager.compose import assemble
from koord_manager.settings import ManagerSettings
from koordcore.bus.factory import Bus, BusSettings, bootstrap_bus, open_bus
from koordcore.bus.streams import StreamSizes
from koordcore.embedded.nats import NatsServer
from koordcore.events.envelope import AggregateRef, Origin, name_token
from koordcore.events.observation import NodeUsageReported, Usage
from koordcore.service.lifecycle import Component
from koordcore.service.run import Shell, serve
from koordcore.service.sole_leader import SoleLeader
from koordcore.state.aggregates import NodePolicyState
from koordctl.folding import fold_to
from koordctl.rerun_manager import Question, compare
from koordctl.rerun_nodes import NodeComparison, lends_otherwise, slo_differences

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

NODES = ("n1", "n2", "n3")
CORES = 16
GIB = 1 << 30
Json = dict[str, Any]


def node(name: str, **labels: str) -> Json:
    amounts = {"cpu": str(CORES), "memory": "64Gi", "pods": "110"}
    status = {"capacity": amounts, "allocatable": amounts}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def config_data(cpu_percent: int, suppress_percent: int = 65) -> dict[str, str]:
    burst = {"name": "quiet", "nodeSelector": {"matchLabels": {"kind": "quiet"}}, "policy": "none"}
    return {
        "colocation-config": json.dumps({"enable": True, "cpuReclaimThresholdPercent": cpu_percent}),
        "resource-threshold-config": json.dumps(
            {"clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": suppress_percent}}
        ),
        "cpu-burst-config": json.dumps({"clusterStrategy": {"policy": "auto"}, "nodeStrategies": [burst]}),
    }


def config(data: Mapping[str, str]) -> Json:
    metadata = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}


class Recorder:
    """A manager at work on a log, and agents that report to it."""

    def __init__(self, bus: Bus, shell: Shell[ManagerSettings], client: httpx.AsyncClient) -> None:
        self.bus = bus
        self._shell = shell
        self._client = client

    async def apply(self, *documents: Json) -> None:
        for document in documents:
            answer = await self._client.post("/v1/apply", content=json.dumps(document))
            assert all(result["action"] in ("created", "configured") for result in answer.json()["results"]), (
                answer.text
            )

    async def report(self, name: str, system_milli: int) -> None:
        now = self._shell.clock.now().isoformat()
        report = NodeUsageReported(
            updated_at=now,
            report_interval_seconds=60,
            aggregate_duration_seconds=300,
            node_usage=Usage(system_milli, 10 * GIB),
            system_usage=Usage(system_milli, GIB),
            pods=[],
        )
        origin = Origin(causation_id=f"report/{name}/{now}", correlation_id=name, actor="agent/t", occurred_at=now)
        await self.bus.observations.publish(AggregateRef("node", name_token(name)), report, origin)

    async def policies(self) -> dict[str, NodePolicyState]:
        head = await self.bus.events.head()
        return (await fold_to(self.bus.events, head.last_seq)).state.of_kind(NodePolicyState)

    async def until(self, condition: Callable[[dict[str, NodePolicyState]], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition(await self.policies()):  # noqa: ASYNC110  any condition, not one that has an event
                await asyncio.sleep(0.1)

    async def again(self, chosen: Mapping[str, str] | None, begin: int = 0) -> NodeComparison:
        head = await self.bus.events.head()
        asked = Question(begin=begin, end=head.last_seq, chosen=chosen)
        bus = self.bus
        return (await compare(bus.events, bus.observations, bus.snapshots, asked, lambda _: None)).nodes


@contextlib.asynccontextmanager
async def recording(server: NatsServer) -> AsyncGenerator[Recorder]:
    settings = BusSettings(urls=(server.url,), cluster="nodes")
    sizes = StreamSizes(**dict.fromkeys(StreamSizes.__dataclass_fields__, 16 * 1024 * 1024))
    await bootstrap_bus(settings, sizes=sizes)
    started: asyncio.Future[Shell[ManagerSettings]] = asyncio.get_running_loop().create_future()

    async def compose(shell: Shell[ManagerSettings]) -> None:
        assemble(shell, bus, SoleLeader("manager"))

        async def say_started() -> None:
            started.set_result(shell)

        shell.service.add(Component(name="started", start=say_started))

    async with open_bus(settings) as bus:
        words = ["--log-level=error", "--cluster=nodes", "--control-interval=50ms"]
        serving = asyncio.create_task(serve(ManagerSettings.load(words, {}), compose, handle_signals=False))
        shell = await started
        async with httpx.AsyncClient(base_url=shell.http.url, trust_env=False, timeout=20) as client:
            yield Recorder(bus, shell, client)
        shell.service.stop("the story has ended")
        assert await serving == 0


async def live_through(story: Recorder) -> int:
    """Reports that rise and fall, a node that is made quiet, two configurations; the position between the two."""
    await story.apply(config(config_data(60)), *(node(name) for name in NODES))
    for system_milli in (1500, 6000, 2000):
        for name in NODES:
            await story.report(name, system_milli)
        lent = CORES * 600 - system_milli
        await story.until(lambda policies, lent=lent: [p.batch_cpu_milli for p in policies.values()] == [lent] * 3)
    between = (await story.bus.events.head()).last_seq
    await story.apply(node("n2", kind="quiet"))
    await story.until(lambda policies: slo(policies["n2"])["cpuBurstStrategy"]["policy"] == "none")
    await story.apply(config(config_data(70, suppress_percent=75)))
    lent = CORES * 700 - 2000
    await story.until(
        lambda policies: all(
            p.batch_cpu_milli == lent and slo(p)["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"] == 75
            for p in policies.values()
        )
    )
    return between


def slo(policy: NodePolicyState) -> Json:
    assert policy.slo is not None
    return policy.slo


async def test_recorded_decisions_about_nodes_are_repeated_by_the_same_configuration_and_changed_by_another_as_it_says(
    nats_server: NatsServer,
) -> None:
    async with recording(nats_server) as story:
        between = await live_through(story)

        for begin in (0, between):
            same = await story.again(None, begin)
            assert same.tally.recorded == same.tally.anew == same.tally.same > 5
            assert (same.fates, same.tally.not_kept) == ([], 0)
            assert same.before == same.after
        assert (await story.again(config_data(70, 75))).fates == []

        other = await story.again(config_data(50, suppress_percent=40))
        assert [fate.node for fate in other.fates] == list(NODES)
        for fate in other.fates:
            assert fate.recorded is not None
            assert fate.anew is not None
            assert lends_otherwise(fate)
            # 20 % of 16 cores fewer
            assert (fate.recorded.batch_cpu_milli or 0) - (fate.anew.batch_cpu_milli or 0) == CORES * 200
            assert fate.anew.terms["cpu"].margin == CORES * 500
            assert fate.anew.batch_memory_bytes == fate.recorded.batch_memory_bytes
            [field] = slo_differences(fate)
            path = "resourceUsedThresholdWithBE.cpuSuppressThresholdPercent"
            assert (field.path, field.recorded, field.rerun) == (path, 75, 40)

        off = {"colocation-config": json.dumps({"enable": False})}
        assert (await story.again(off)).after.nodes == 0
