"""Which pods a node may report about."""

from koordcore.events.envelope import AggregateRef, Draft, Event
from koordcore.events.objects import PodSpecAdded
from koordcore.events.observation import NodeUsageReported, PodUsage, Usage
from koordcore.events.pod import PodReleased
from koordcore.protocol.objects import ObjectMeta, Pod, PodSpec
from koordcore.state import ClusterState
from koordcore.state.pods_of_nodes import is_elsewhere, is_foreign, own_report
from support.histories.recording import stored


class Cluster:
    """Pods on nodes, with the uid of their name."""

    def __init__(self, **pods: str) -> None:
        self.state = ClusterState()
        for name, node in pods.items():
            meta = ObjectMeta(name=name, namespace="default", uid=name)
            self.tell("podspec", name, PodSpecAdded(object=Pod(metadata=meta, spec=PodSpec(node_name=node))))

    def tell(self, kind: str, id_: str, event: Event) -> None:
        self.state.apply(stored(self.state.position + 1, Draft(AggregateRef(kind, id_), event, 0)))

    def named(self, _namespace: str, name: str) -> str | None:
        return name if is_foreign(self.state, name, "nowhere") else None


def usage(name: str, *, uid: str | None = None) -> PodUsage:
    return PodUsage(
        uid=name if uid is None else uid,
        namespace="default",
        name=name,
        priority_class="",
        qos="LS",
        usage=Usage(1000, 1),
    )


def test_a_node_reports_about_its_pods_and_about_those_that_nobody_knows() -> None:
    cluster = Cluster(mine="n.1", theirs="n.2", waiting="")
    samples = [usage(name) for name in ("mine", "theirs", "waiting", "deleted")]
    report = NodeUsageReported(
        updated_at="2026-01-01T00:00:00Z", report_interval_seconds=60, aggregate_duration_seconds=300, pods=samples
    )
    own, foreign = own_report(cluster.state, "n_1", report, cluster.named)
    assert [sample.name for sample in own.pods] == ["mine", "waiting", "deleted"]
    assert [sample.name for sample in foreign] == ["theirs"]


def test_a_sample_without_a_uid_is_of_the_pod_with_its_name() -> None:
    cluster = Cluster(mine="n.1", theirs="n.2")
    samples = [usage(name, uid="") for name in ("mine", "theirs", "deleted")]
    report = NodeUsageReported(
        updated_at="2026-01-01T00:00:00Z", report_interval_seconds=60, aggregate_duration_seconds=300, pods=samples
    )
    own, _ = own_report(cluster.state, "n_1", report, cluster.named)
    assert [sample.name for sample in own.pods] == ["mine", "deleted"]


def test_what_a_node_says_about_a_pod_without_a_node_does_not_count_and_is_not_told() -> None:
    cluster = Cluster(waiting="")
    cluster.tell("pod", "waiting", PodReleased(namespace="default", name="waiting", node="n.1", reason="gone"))
    assert is_foreign(cluster.state, "waiting", "n_1")
    assert not is_elsewhere(cluster.state, "waiting", "n_1")
