"""Each example of examples/descheduler is applied to a cluster that needs it, in both formats.

A manager, a scheduler and the descheduler run as processes behind an API server. The pods that the text of an example
names leave, by the eviction endpoint, and get successors that the scheduler places; all others stay.
`test_gpu_repack` applies the example of the repacking of GPUs.
"""

import contextlib
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from koordcore.bus.factory import BusSettings, open_bus
from koordcore.embedded.nats import NatsServer
from koordcore.events import CATALOGUE
from koordcore.events.descheduling import RoundDecided, RoundMove, RoundMovesAdded
from koordcore.events.envelope import AggregateRef
from koordcore.events.objects import plural_of
from koordcore.protocol import keys
from koordcore.state.aggregates import CustomObjectState, NodeSpecState, PodSpecState
from prometheus_client.parser import text_string_to_metric_families
from support.descheduler.examples.clusters import EXAMPLE, ExampleCluster
from support.descheduler.examples.native import limited_cluster, native_clusters
from support.descheduler.examples.stand_ins import placed_successors, stand_ins, store
from support.descheduler.examples.upstream import old_policy_cluster, upstream_clusters
from support.kubernetes.cluster_day import CLUSTER, Day, cluster_day, fold_of
from support.kubernetes.gateway_world import install_crds
from support.until import DEADLINE_SECONDS, until

pytestmark = [pytest.mark.slow, pytest.mark.nats]

Json = dict[str, Any]
FOLDER = Path(__file__).parents[2] / "examples" / "descheduler"
POLICIES = FOLDER / "policies"
CONFIGURATIONS = FOLDER / "configurations"
OLD_POLICY = POLICIES / "all-strategies-v1alpha1.yaml"
PART_OF_ANOTHER_TEST = {"gpu-repack"}


@contextlib.asynccontextmanager
async def running(tmp_path: Path, nats: NatsServer, clusters: Sequence[ExampleCluster]) -> AsyncGenerator[Day]:
    """Run a manager and a scheduler on the clusters of examples."""
    async with cluster_day(tmp_path, nats) as day:
        await install_crds(day.server)
        store(day.server, clusters)
        await day.start_manager("manager")
        await day.start("scheduler", "koord_scheduler")
        async with stand_ins(day.server, clusters):
            await until(lambda: is_mirrored(day), "the log has all objects", every=0.2)
            yield day


@contextlib.asynccontextmanager
async def applied(day: Day, name: str, configuration: Json) -> AsyncGenerator[str]:
    """Run the descheduler with a configuration, and provide the name of the process."""
    file = day.directory / f"{name}.yaml"
    file.write_text(yaml.safe_dump(configuration))
    await day.start(name, "koord_descheduler", ["--config", str(file)])
    try:
        yield name
    finally:
        await day.processes[name].stop()


async def is_mirrored(day: Day) -> bool:
    """Return whether the log has all objects: else the first round would act on a part of the cluster."""
    state = await fold_of(day.nats)
    customs = Counter(plural_of(id_) for id_ in state.of_kind(CustomObjectState))
    found = {
        "pods": len(state.of_kind(PodSpecState)),
        "nodes": len(state.of_kind(NodeSpecState)),
        "replicasets": customs["replicasets"],
        "nodemetrics": len(day.server.objects("nodes")),
    }
    return all(len(day.server.objects(plural)) == number for plural, number in found.items())


def merged(
    documents: Sequence[Json], clusters: Sequence[ExampleCluster], kind: str = "DeschedulerConfiguration"
) -> Json:
    """Return one document with the profile of each of these, under the name of its cluster."""
    profiles = [
        {**document["profiles"][0], "name": cluster.name} for document, cluster in zip(documents, clusters, strict=True)
    ]
    limits = {key: value for key, value in documents[0].items() if key.startswith("maxNoOf")}
    return {"apiVersion": "descheduler/v1alpha2", "kind": kind, **limits, "profiles": profiles}


def bound(configuration: Json) -> Json:
    """Return a configuration whose profiles act on the nodes of their clusters only."""
    profiles = [
        {**profile, "nodeSelector": {"matchLabels": {EXAMPLE: profile["name"]}}}
        for profile in configuration["profiles"]
    ]
    return {**configuration, "profiles": profiles}


def read(folder: Path, clusters: Sequence[ExampleCluster]) -> list[Json]:
    return [yaml.safe_load((folder / f"{cluster.file}.yaml").read_text()) for cluster in clusters]


def converted(file: Path) -> Json:
    """Return the output of `koord descheduler convert`."""
    command = [sys.executable, "-m", "koordctl", "descheduler", "convert", str(file)]
    return yaml.safe_load(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)


async def moves(nats: NatsServer) -> list[RoundMove]:
    """Return all moves that rounds have decided on."""
    found: list[RoundMove] = []
    async with open_bus(BusSettings(urls=(nats.url,), cluster=CLUSTER)) as bus:
        head = await bus.events.head()
        async for batch in bus.events.history(0, head.last_seq):
            for stored in batch:
                if stored.ref == AggregateRef("descheduling", "rounds"):
                    event = CATALOGUE.read(stored)
                    if isinstance(event, RoundDecided | RoundMovesAdded):
                        found += event.moves
    return found


def rounds(day: Day, instance: str) -> float:
    """Return the number of rounds that an instance of the descheduler has run."""
    page = httpx.get(f"{day.urls[instance]}/metrics", trust_env=False, timeout=DEADLINE_SECONDS).text
    return next(
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "descheduler_round_duration_seconds_count"
    )


async def check(day: Day, instance: str, clusters: Sequence[ExampleCluster], *, further_rounds: int = 0) -> None:
    """Check that exactly the marked pods of clusters leave.

    Args:
        day: The running services.
        instance: The descheduler.
        clusters: The clusters of the examples that it applies.
        further_rounds: Rounds in which nothing else may happen.
    """
    pods = {pod["metadata"]["uid"]: pod for cluster in clusters for pod in cluster.pods}

    def gone() -> set[str]:
        return pods.keys() - {pod["metadata"]["uid"] for pod in day.server.objects("pods")}

    number = sum(cluster.moved for cluster in clusters)
    await day.until(lambda: len(gone()) >= number, f"{number} pods leave")
    seen = rounds(day, instance)
    await day.until(lambda: rounds(day, instance) >= seen + further_rounds, "further rounds")
    for cluster in clusters:
        own = {pod["metadata"]["uid"] for pod in cluster.pods}
        left = gone() & own
        assert left <= cluster.leaving, f"{cluster.name}: pods that have to stay"
        assert len(left) == cluster.moved, cluster.name
        assert {move.uid for move in await moves(day.nats) if move.uid in own} == left, cluster.name
        assert closed_nodes(day, cluster) == cluster.closed, cluster.name
        assert deletion_costs(day, cluster) == cluster.costs, cluster.name
    await day.until(lambda: gone() <= placed_successors(day.server).keys(), "successors have nodes")
    for cluster in clusters:
        for uid in gone() & cluster.leaving if cluster.away else ():
            assert placed_successors(day.server)[uid] != pods[uid]["spec"]["nodeName"], uid
    refused = [request for request in day.server.refused if request[1] != "list"]
    assert not refused, "the shipped rights suffice"


def closed_nodes(day: Day, cluster: ExampleCluster) -> set[str]:
    own = {node["metadata"]["name"] for node in cluster.nodes}
    return {
        node["metadata"]["name"]
        for node in day.server.objects("nodes")
        if node["metadata"]["name"] in own and node["spec"].get("unschedulable")
    }


def deletion_costs(day: Day, cluster: ExampleCluster) -> dict[str, str]:
    own = {pod["metadata"]["uid"] for pod in cluster.pods}
    return {
        pod["metadata"]["name"]: cost
        for pod in day.server.objects("pods")
        if pod["metadata"]["uid"] in own and (cost := pod["metadata"]["annotations"].get(keys.POD_DELETION_COST))
    }


def test_every_example_is_applied() -> None:
    now = datetime.now(UTC)
    upstream = {cluster.file for cluster in upstream_clusters(now)}
    native = {cluster.file for cluster in [*native_clusters(now), limited_cluster(now)]}
    assert {file.stem for file in POLICIES.glob("*.yaml")} == upstream | {OLD_POLICY.stem}
    assert {file.stem for file in CONFIGURATIONS.glob("*.yaml")} == upstream | native | PART_OF_ANOTHER_TEST


@pytest.mark.deep
async def test_each_example_moves_the_pods_that_it_names_and_no_others(
    tmp_path: Path, fresh_nats_server: NatsServer
) -> None:
    now = datetime.now(UTC)
    upstream, policies = upstream_clusters(now), upstream_clusters(now, "policy-")
    old, native, limited = old_policy_cluster(now), native_clusters(now), limited_cluster(now)
    policy = tmp_path / "policy.yaml"
    policy.write_text(yaml.safe_dump(merged(read(POLICIES, policies), policies, kind="DeschedulerPolicy")))
    async with running(tmp_path, fresh_nats_server, [*upstream, *policies, old, *native, limited]) as day:
        async with applied(day, "upstream", bound(merged(read(CONFIGURATIONS, upstream), upstream))) as instance:
            await check(day, instance, upstream)
        async with applied(day, "policies", bound(converted(policy))) as instance:
            await check(day, instance, policies)
        async with applied(day, "old-policy", converted(OLD_POLICY)) as instance:
            await check(day, instance, [old])
        often = {"deschedulingInterval": "1s"}
        async with applied(day, "native", bound(merged(read(CONFIGURATIONS, native), native)) | often) as instance:
            await check(day, instance, native, further_rounds=3)
        async with applied(
            day, "limited", bound(merged(read(CONFIGURATIONS, [limited]), [limited])) | often
        ) as instance:
            await check(day, instance, [limited], further_rounds=3)
