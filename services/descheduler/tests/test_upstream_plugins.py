"""Rules of the Kubernetes descheduler that its own code has shown us."""

from typing import Any

import pytest
from koord_descheduler.domain.framework.eviction import EvictionLimiter, EvictionLimits
from koord_descheduler.domain.framework.plugin import BalancePlugin, DeschedulePlugin
from koord_descheduler.domain.framework.registry import SharedState
from koord_descheduler.domain.framework.round import Profile, run_round
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_descheduler.domain.plugins.upstream.default_evictor import DefaultEvictor, DefaultEvictorArgs
from koord_descheduler.domain.plugins.upstream.utilization import NodeUsage, is_within
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.fit import FitIndex, native_misfits, upstream_misfit
from support.descheduler.views import node_view_from_json, pod_view_from_json

DEVICE = "example.com/device"


def _pod(
    name: str, node: str, requests: dict[str, str] | None = None, status: dict[str, Any] | None = None
) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r"}
    return {
        "metadata": {"name": name, "uid": name, "namespace": "d", "ownerReferences": [owner]},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "image": "i", "resources": {"requests": requests or {}}}],
        },
        "status": {"phase": "Running", **(status or {})},
    }


def _view(pods: list[dict[str, Any]], **allocatable: str) -> ClusterView:
    nodes = [{"metadata": {"name": name}, "status": {"allocatable": {"pods": "9", **allocatable}}} for name in "ab"]
    return ClusterView(
        now=0.0,
        nodes=tuple(map(node_view_from_json, nodes)),
        pods=tuple(map(pod_view_from_json, pods)),
    )


@pytest.mark.parametrize(("has", "misfit"), [({}, ""), ({DEVICE: "1"}, f"insufficient_{DEVICE}")])
def test_a_request_of_zero_fits_where_the_resource_does_not_exist_and_not_where_too_much_is_given(
    has: dict[str, str], misfit: str
) -> None:
    view = _view([_pod("zero", "b", {DEVICE: "0"}), _pod("holder", "a", {DEVICE: "2"})], **has)
    node, pod = view.nodes[0], view.pods[0]
    assert upstream_misfit(pod, node, view) == misfit
    assert native_misfits(pod, node, view) == [misfit][: bool(misfit)]
    assert bool([*FitIndex([node], view).fitting(pod)]) != bool(misfit)


def test_exit_codes_of_ephemeral_containers_never_count() -> None:
    ended = [{"name": "debug", "state": {"terminated": {"exitCode": 137, "reason": "Error"}}}]
    view = _view([_pod("debugged", "a", status={"ephemeralContainerStatuses": ended})])
    assert _evicted(view, "PodLifeTime", exitCodes=[137], includingEphemeralContainers=True) == []
    assert _evicted(view, "PodLifeTime", states=["Error"], includingEphemeralContainers=True) == ["debugged"]


def test_a_percentage_is_rounded_as_upstream_does() -> None:
    node = node_view_from_json({"metadata": {"name": "a"}, "status": {"allocatable": {"pods": "100"}}})
    assert not is_within(NodeUsage(node, {"pods": 7}), {"pods": 7})
    assert is_within(NodeUsage(node, {"pods": 57}), {"pods": 57})


def test_the_mean_is_that_of_the_nodes_with_the_resource() -> None:
    """Of three nodes two have devices, all of which are taken on one: the mean is 50 %, and the other one is low."""
    amounts = ({"pods": "9", DEVICE: "4"}, {"pods": "9", DEVICE: "4"}, {"pods": "9"})
    nodes = [
        {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "9", "memory": "9Gi", **each}}}
        for name, each in zip("abc", amounts, strict=True)
    ]
    pods = [_pod(name, "a", {DEVICE: "1"}) for name in "pqrs"]
    view = ClusterView(now=0.0, nodes=tuple(map(node_view_from_json, nodes)), pods=tuple(map(pod_view_from_json, pods)))
    bounds = {DEVICE: 40}
    assert _evicted(
        view, "LowNodeUtilization", thresholds=bounds, targetThresholds=bounds, useDeviationThresholds=True
    ) == ["p"]


def _evicted(view: ClusterView, name: str, **args: object) -> list[str]:
    kind = BUILT_IN[name]
    plugin = kind.make(kind.decode(args), SharedState())
    evictor = DefaultEvictor(DefaultEvictorArgs(), {})
    deschedule = [plugin] if isinstance(plugin, DeschedulePlugin) else []
    balance = [plugin] if isinstance(plugin, BalancePlugin) else []
    profile = Profile(name="p", deschedule=deschedule, balance=balance, filters=[evictor], evict=evictor)
    outcome = run_round([profile], view, EvictionLimiter(EvictionLimits()))
    return [attempt.pod.name for attempt in outcome.attempts]
