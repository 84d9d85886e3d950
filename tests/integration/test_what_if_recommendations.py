"""A recorded log whose recommendations are made again: by the same settings alike, by others as their formula says."""

import pytest
from koord_manager.domain.controllers.recommender.settings import DEFAULT_SETTINGS, read_settings
from koordcore.embedded.nats import NatsServer
from koordcore.events.observation import PodUsage, Usage
from koordcore.state import ClusterState
from koordcore.state.aggregates import PodSpecState, RecommendationState
from support.manager.recording import GIB, Json, Recorder, recording

pytestmark = [pytest.mark.nats]

MINUTES_IN_A_SECOND = 10


def node(name: str) -> Json:
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    status = {"capacity": amounts, "allocatable": amounts}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def deployment(replicas: int) -> Json:
    container = {"name": "app", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"nodeName": "n1", "containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": spec,
    }


def recommendation() -> Json:
    target = {"type": "workload", "workload": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}}
    metadata = {"namespace": "shop", "name": "web"}
    return {
        "apiVersion": "analysis.koordinator.sh/v1alpha1",
        "kind": "Recommendation",
        "metadata": metadata,
        "spec": {"target": target},
    }


def samples(state: ClusterState) -> int:
    return sum(
        container.samples for told in state.of_kind(RecommendationState).values() for container in told.containers
    )


async def report(story: Recorder, cpu_milli: int) -> int:
    """One report of all pods; how many."""
    pods = [
        PodUsage(
            uid=uid,
            namespace=spec.object.metadata.namespace,
            name=spec.object.metadata.name,
            priority_class="koord-prod",
            qos="LS",
            usage=Usage(cpu_milli, 2 * GIB),
        )
        for uid, spec in (await story.state()).of_kind(PodSpecState).items()
    ]
    await story.report("n1", 500, pods)
    return len(pods)


async def live_through(story: Recorder) -> int:
    """Reports that rise while the workload grows and shrinks; the position in the middle."""
    await story.apply(node("n1"), deployment(2), recommendation())
    known, between = 0, 0
    for replicas, cpu_milli in ((2, 300), (2, 700), (3, 700), (1, 200), (1, 200)):
        await story.apply(deployment(replicas))
        await story.until(lambda state, replicas=replicas: len(state.of_kind(PodSpecState)) == replicas)
        known += await report(story, cpu_milli)
        await story.until(lambda state, known=known: samples(state) == known)
        if replicas == 3:
            between = (await story.bus.events.head()).last_seq
    return between


async def test_recorded_recommendations_are_repeated_by_the_same_settings_and_changed_by_others_as_they_say(
    nats_server: NatsServer,
) -> None:
    async with recording(nats_server, "recommendations", clock=str(60 * MINUTES_IN_A_SECOND)) as story:
        between = await live_through(story)
        for begin in (0, between):
            same = (await story.again(begin=begin)).recommendations
            assert same.tally.recorded == same.tally.rerun == same.tally.same > 1
            assert (same.fates, same.tally.not_retained) == ([], 0)

        wider = (await story.again(settings=read_settings("safetyMarginFraction=0.5"))).recommendations
        [fate] = wider.fates
        assert fate.recorded is not None
        assert fate.rerun is not None
        [before], [after] = fate.recorded.containers, fate.rerun.containers
        assert (after.samples, after.percentiles) == (before.samples, before.percentiles)
        for said, margin in ((before, DEFAULT_SETTINGS.safety_margin_fraction), (after, 0.5)):
            base = int(said.percentiles["target"].cpu_cores * 1000)
            assert said.target.cpu_milli == base + int(base * margin)
