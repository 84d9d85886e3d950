"""What each container uses is reported where the pod's usage does not say it already."""

from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.series import SeriesStore
from koord_agent.domain.node.pods import AgentPod, agent_pod_from_json
from koord_agent.domain.node.policies import CollectPolicy
from koord_agent.domain.reporting.report import node_report, usage_reported
from koordcore.events.observation import ContainerUsage, Usage

MIB = 1 << 20


def pod(*containers: str) -> AgentPod:
    running: dict[str, object] = {"running": {}}
    statuses = [{"name": name, "containerID": f"containerd://{name}", "state": running} for name in containers]
    document: dict[str, object] = {
        "metadata": {"name": "p", "namespace": "d", "uid": "u"},
        "spec": {"containers": [{"name": name} for name in containers]},
        "status": {"phase": "Running", "containerStatuses": statuses},
    }
    return agent_pod_from_json(document)


def reported(*containers: str) -> list[ContainerUsage]:
    """Containers of the pod's sample; the first of them uses half a core, the others have no sample yet."""
    store = SeriesStore()
    first = pod(*containers).containers[0].container_id
    for kind, value, of in (
        (Kind.POD_CPU, 1.0, "u"),
        (Kind.POD_MEMORY, 300.0 * MIB, "u"),
        (Kind.CONTAINER_CPU, 0.5, first),
        (Kind.CONTAINER_MEMORY, 100.0 * MIB, first),
    ):
        store.append(kind, 60_000, value, of)
    report = node_report(store, now_ms=60_000, policy=CollectPolicy(), pods=[pod(*containers).reported])
    (sample,) = usage_reported(report, updated_at="", be_quota_us=-1).pods
    return sample.containers


def test_of_several_containers_each_that_was_measured_is_reported() -> None:
    assert reported("app", "helper") == [ContainerUsage(name="app", usage=Usage(500, 100 * MIB))]


def test_an_only_container_is_the_pod() -> None:
    assert reported("app") == []
