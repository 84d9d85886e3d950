"""A day of a cluster behind an API server: two managers over TLS with the rights of k8s/, a scheduler, the projector.

CRDs, a profile, nodes and pods; the configuration changes twice, once badly; the leader is killed in the middle, the
watches are lost, the history expires, the bus restarts. At the end the API's objects, the log and the projector agree.
"""

import asyncio
import json
import os
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from koord_manager.domain.what_if.admission import AdmissionTried
from koordcore.bus.factory import Bus, BusSettings, open_bus
from koordcore.embedded.nats import NatsServer
from koordcore.protocol.crd.catalogue import definition_texts
from koordcore.service.clock import SystemClock
from koordcore.state.aggregates import ConfigState, NodePolicyState, PodSpecState, PodState
from koordcore.values.quantity import parse_milli
from koordctl.replay.admission import tried_of
from koordctl.replay.manager_rerun import ManagerComparison, Question, compare
from koordctl.replay.verify import verify_now
from support.kubernetes.apiserver import ApiServer
from support.kubernetes.cluster_day import CLUSTER, cluster_day, fold_of, manifests
from support.kubernetes.gateway_world import node

pytestmark = [pytest.mark.deep, pytest.mark.slow, pytest.mark.nats, pytest.mark.postgres]

Json = dict[str, Any]

NODES = int(os.environ.get("KOORD_DAY_NODES", "200"))
PODS = int(os.environ.get("KOORD_DAY_PODS", "3000"))
CREATORS = 8
SUPPRESS_PERCENT = 50
"""What the last good configuration says; the default is 65."""
COLOCATION = '{"enable": true, "cpuReclaimThresholdPercent": 60, "memoryReclaimThresholdPercent": 65}'


def config(threshold: str) -> Json:
    meta = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    data = {"colocation-config": COLOCATION, "resource-threshold-config": threshold}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def suppress_percent(slo: Json) -> int:
    """What a NodeSLO says about the suppression of best-effort pods."""
    return slo["spec"]["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"]


def pod(number: int) -> Json:
    """Every third one is best-effort by the profile."""
    labels = {"app": f"app-{number % 10}"}
    if number % 3 == 0:
        labels["colocation"] = "yes"
    amounts = {"cpu": f"{100 + number % 5 * 50}m", "memory": "128Mi"}
    container = {"name": "main", "image": "pause", "resources": {"requests": amounts, "limits": dict(amounts)}}
    spec: Json = {"schedulerName": "koord-scheduler", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{number}", "labels": labels}, "spec": spec}


PROFILE: Json = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "best-effort"},
    "spec": {
        "selector": {"matchLabels": {"colocation": "yes"}},
        "qosClass": "BE",
        "priorityClassName": "koord-batch",
        "koordinatorPriority": 1000,
        "labels": {"admitted": "true"},
    },
}


async def kubelets(server: ApiServer) -> None:
    """Pods that have a node begin to run."""
    while True:
        for found in server.objects("pods"):
            if found["spec"].get("nodeName") and found["status"].get("phase") == "Pending":
                meta = found["metadata"]
                await server.patch_status("pods", meta["namespace"], meta["name"], {"phase": "Running"})
                await asyncio.sleep(0)
        await asyncio.sleep(0.1)


async def stock_agents(server: ApiServer) -> None:
    """What a stock node agent of every node reports."""
    now = SystemClock().now().isoformat().replace("+00:00", "Z")
    usage = {
        "nodeUsage": {"resources": {"cpu": "1", "memory": "2Gi"}},
        "systemUsage": {"resources": {"cpu": "100m", "memory": "256Mi"}},
    }
    for number in range(NODES):
        name = f"node-{number}"
        if server.object("nodemetrics", "", name) is not None:
            await server.patch_status("nodemetrics", "", name, {"updateTime": now, "nodeMetric": usage})


async def create(server: ApiServer, numbers: range) -> None:
    """A user's pods, as many at once as a controller creates them; what a restarting webhook refuses is tried again."""
    waiting = list(numbers)
    async with httpx.AsyncClient(
        base_url=server.url,
        verify=ssl.create_default_context(cafile=server.ca_file),
        headers={"authorization": "Bearer admin-token"},
        timeout=60,
        trust_env=False,
    ) as client:

        async def creator() -> None:
            while waiting:
                number = waiting.pop()
                answer = await client.post("/api/v1/namespaces/default/pods", json=pod(number))
                if answer.status_code >= 500:
                    waiting.append(number)
                    await asyncio.sleep(0.2)
                else:
                    assert answer.status_code in (201, 409), answer.text

        await asyncio.gather(*(creator() for _ in range(CREATORS)))


async def admitted(bus: Bus, tried: AdmissionTried | None) -> ManagerComparison:
    """The whole log admitted anew."""
    asked = Question(begin=0, end=(await bus.events.head()).last_seq, admitting=tried)
    return await compare(bus.events, bus.observations, bus.snapshots, asked, lambda _: None, bus.explanations)


async def test_objects_log_and_projector_agree_at_the_end_of_the_day(
    tmp_path: Path, fresh_nats_server: NatsServer, postgres_dsn: str
) -> None:
    async with cluster_day(tmp_path, fresh_nats_server) as whole:
        server = whole.server
        # 1. installed: definitions, webhooks, configuration, profile
        for text in definition_texts().values():
            await server.apply(yaml.safe_load(text))
        for name in ("priorityclasses.yaml", "webhooks.yaml"):
            for document in manifests(name):
                await server.apply(document)
        await server.apply(config('{"clusterStrategy": {"enable": true, "cpuSuppressThresholdPercent": 65}}'))
        await server.apply(PROFILE)
        await whole.start_manager("manager-a")
        await whole.start_manager("manager-b")
        await whole.start("scheduler", "koord_scheduler")
        await whole.start("projector", "koord_projector", env={"KOORD_PROJECTOR_DSN": postgres_dsn})
        for number in range(NODES):
            await server.apply(node(f"node-{number}", cpu=16))
        await whole.until(lambda: len(server.objects("nodemetrics")) == NODES, "the nodes' NodeMetrics")
        await stock_agents(server)

        def lends(found: Json) -> bool:
            return "kubernetes.io/batch-cpu" in found["status"]["allocatable"]

        await whole.until(lambda: all(map(lends, server.objects("nodes"))), "batch resources on every node")
        running = asyncio.create_task(kubelets(server))
        try:
            # 2. the first pods
            await create(server, range(PODS // 3))
            # 3. the configuration changes, well and then badly
            strategy = f'{{"enable": true, "cpuSuppressThresholdPercent": {SUPPRESS_PERCENT}}}'
            await server.apply(config(f'{{"clusterStrategy": {strategy}}}'))
            # If a leader dies before it has read an object, the next one does not read what was replaced meanwhile.
            await whole.until(
                lambda: SUPPRESS_PERCENT in map(suppress_percent, server.objects("nodeslos")), "the good configuration"
            )
            await server.apply(config('{"clusterStrategy": {"enable": '))
            # 4. the leader is killed while pods come
            leader = await whole.leader()
            arriving = asyncio.create_task(create(server, range(PODS // 3, 2 * PODS // 3)))
            await whole.until(lambda: len(server.objects("pods")) > PODS // 3 + CREATORS, "pods that come")
            await whole.processes[leader].kill()
            whole.endpoints()
            await arriving
            # 5. the watches are lost, and their history with them
            arriving = asyncio.create_task(create(server, range(2 * PODS // 3, PODS)))
            server.store.compact()
            server.faults.drop_watches()
            # 6. the bus restarts
            await whole.nats.restart()
            await arriving
            await whole.start_manager("manager-c")
            await stock_agents(server)
            await whole.until(
                lambda: len(server.objects("pods")) == PODS and not whole.unbound(), "all pods bound", 300
            )
        finally:
            running.cancel()
        await whole.until(
            lambda: [suppress_percent(item) for item in server.objects("nodeslos")] == [SUPPRESS_PERCENT] * NODES,
            "the last good configuration on every node",
        )
        await whole.until(
            lambda: any(item["reason"] == "SLOCfgUnmarshalFailed" for item in server.objects("events", "")),
            "the event about the bad configuration",
        )

        async def is_all_recorded() -> bool:
            specs = (await fold_of(whole.nats)).of_kind(PodSpecState)
            found = [specs.get(item["metadata"]["uid"]) for item in server.objects("pods")]
            return all(spec is not None and spec.binding is not None for spec in found)

        await whole.until(is_all_recorded, "the outcome of every binding in the log")

        # 7. who was asked for what, and who was refused
        assert server.refused == []
        best_effort = [item for item in server.objects("pods") if item["metadata"]["labels"].get("colocation")]
        assert best_effort
        for item in best_effort:
            assert item["metadata"]["labels"]["koordinator.sh/qosClass"] == "BE"
            assert set(item["spec"]["containers"][0]["resources"]["requests"]) == {
                "kubernetes.io/batch-cpu",
                "kubernetes.io/batch-memory",
            }

        # 8. the API's objects and the log agree, and no node holds more than it has
        state = await fold_of(whole.nats)
        placed = state.of_kind(PodState)
        held: dict[str, int] = {}
        for item in server.objects("pods"):
            uid, where = item["metadata"]["uid"], item["spec"]["nodeName"]
            assert placed[uid].node == where
            requests = item["spec"]["containers"][0]["resources"]["requests"]
            held[where] = held.get(where, 0) + parse_milli(requests.get("cpu", "0"))
        for item in server.objects("nodes"):
            assert held.get(item["metadata"]["name"], 0) <= parse_milli(item["status"]["allocatable"]["cpu"])
        assert list(state.of_kind(ConfigState)["koordinator-system=slo-controller-config"].rejected) == [
            "resource-threshold-config"
        ]
        assert len(state.of_kind(NodePolicyState)) == NODES

        # 9. the manager's fold, the projector's rows and the log from zero agree
        async with open_bus(BusSettings(urls=(whole.nats.url,), cluster=CLUSTER)) as bus:
            explained, without = [(await admitted(bus, tried)).admission for tried in (None, tried_of({}, {}))]
            verdict = await verify_now(bus, manager=whole.urls["manager-c"], seconds=120)
        assert verdict.equal, json.dumps({"live": verdict.live, "projector": verdict.projector})

        # 10. what was admitted follows from what was recorded, and without the profile less would have been changed
        assert (explained.unexplained, explained.fates) == ([], [])
        assert explained.tally.same >= 0.9 * PODS
        assert 0 < len(without.changed) <= len(best_effort)
        assert (without.denied, without.admitted) == ([], [])
