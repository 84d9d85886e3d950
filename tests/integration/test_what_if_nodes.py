"""A recorded log decided anew by the manager: the same configuration gives the same, another what its formula says."""

import json
from collections.abc import Mapping

import pytest
from koordcore.embedded.nats import NatsServer
from koordcore.state import ClusterState
from koordcore.state.aggregates import NodePolicyState
from koordctl.replay.nodes import differences, lends_otherwise
from support.manager.recording import Json, Recorder, recording

pytestmark = [pytest.mark.nats]

NODES = ("n1", "n2", "n3")
CORES = 16


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


async def live_through(story: Recorder) -> int:
    """Reports that rise and fall, a node that is made quiet, two configurations; the position between the two."""
    await story.apply(config(config_data(60)), *(node(name) for name in NODES))
    for system_milli in (1500, 6000, 2000):
        for name in NODES:
            await story.report(name, system_milli)
        lent = CORES * 600 - system_milli
        await story.until(lambda state, lent=lent: [p.batch_cpu_milli for p in policies(state).values()] == [lent] * 3)
    between = (await story.bus.events.head()).last_seq
    await story.apply(node("n2", kind="quiet"))
    await story.until(lambda state: slo(policies(state)["n2"])["cpuBurstStrategy"]["policy"] == "none")
    await story.apply(config(config_data(70, suppress_percent=75)))
    lent = CORES * 700 - 2000
    await story.until(
        lambda state: all(
            p.batch_cpu_milli == lent and slo(p)["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"] == 75
            for p in policies(state).values()
        )
    )
    return between


def policies(state: ClusterState) -> dict[str, NodePolicyState]:
    return state.of_kind(NodePolicyState)


def slo(policy: NodePolicyState) -> Json:
    assert policy.slo is not None
    return policy.slo


async def test_recorded_decisions_about_nodes_are_repeated_by_the_same_configuration_and_changed_by_another_as_it_says(
    nats_server: NatsServer,
) -> None:
    async with recording(nats_server, "nodes") as story:
        between = await live_through(story)

        for begin in (0, between):
            same = (await story.again(None, begin)).nodes
            assert same.tally.recorded == same.tally.rerun == same.tally.same > 5
            assert (same.fates, same.tally.not_retained) == ([], 0)
            assert same.before == same.after
        assert (await story.again(config_data(70, 75))).nodes.fates == []

        other = (await story.again(config_data(50, suppress_percent=40))).nodes
        assert [fate.node for fate in other.fates] == list(NODES)
        for fate in other.fates:
            assert fate.recorded is not None
            assert fate.rerun is not None
            assert lends_otherwise(fate)
            # 20 % of 16 cores fewer
            assert (fate.recorded.batch_cpu_milli or 0) - (fate.rerun.batch_cpu_milli or 0) == CORES * 200
            assert fate.rerun.terms["cpu"].margin == CORES * 500
            assert fate.rerun.batch_memory_bytes == fate.recorded.batch_memory_bytes
            [field] = differences(fate, "nodeSLO")
            path = "resourceUsedThresholdWithBE.cpuSuppressThresholdPercent"
            assert (field.path, field.recorded, field.rerun) == (path, 75, 40)

        off = {"colocation-config": json.dumps({"enable": False})}
        assert (await story.again(off)).nodes.after.nodes == 0
