"""The clusters of the examples for the plugins of the Kubernetes descheduler.

Source:
    descheduler spec, 6.3, 10
"""

from collections.abc import Sequence
from datetime import datetime

from support.descheduler.examples.clusters import DAY, HOUR, Builder, ExampleCluster, Json


def upstream_clusters(now: datetime, prefix: str = "") -> list[ExampleCluster]:
    """Return the clusters of the examples for the plugins of the Kubernetes descheduler.

    Args:
        now: The present time.
        prefix: Prefix of the names of all objects.
    """
    return [
        _pod_life_time(Builder("pod-life-time", now, prefix)),
        _failed_pods(Builder("remove-failed-pods", now, prefix)),
        _restarts(Builder("remove-pods-having-too-many-restarts", now, prefix)),
        _taints(Builder("remove-pods-violating-node-taints", now, prefix)),
        _node_affinity(Builder("remove-pods-violating-node-affinity", now, prefix)),
        _anti_affinity(Builder("remove-pods-violating-inter-pod-anti-affinity", now, prefix)),
        _duplicates(Builder("remove-duplicates", now, prefix)),
        _low_utilization(Builder("low-node-utilization", now, prefix)),
        _high_utilization(Builder("high-node-utilization", now, prefix)),
        _spread(Builder("remove-pods-violating-topology-spread-constraint", now, prefix)),
        _evictor(Builder("default-evictor", now, prefix)),
    ]


def old_policy_cluster(now: datetime) -> ExampleCluster:
    """Return the cluster of the example in the older format. It has all strategies in one file."""
    make = Builder("all-strategies-v1alpha1", now)
    online = {"pool": "online"}
    no_room = {"reason": "OutOfcpu"}
    two_days = 2 * DAY
    pods = [
        make.pod("on-taint", 1, leaves=True, owner="a", volumes=[{"name": "scratch", "emptyDir": {}}]),
        make.pod("on-batch", 2, owner="b"),
        make.pod("pending", 3, leaves=True, owner="c", age=two_days, phase="Pending", priority=100),
        make.pod("important", 3, owner="d", age=two_days, phase="Pending", priority=20000),
        make.pod("no-room", 3, leaves=True, owner="e", age=2 * HOUR, phase="Failed", status=no_room),
        make.pod("system", 3, owner="f", namespace="kube-system", age=2 * HOUR, phase="Failed", status=no_room),
        make.pod("in-another-pool", 4, owner="g"),
    ]
    gone = [_taint("gone")]
    nodes = [
        make.node(1, taints=gone, labels=online),
        make.node(2, taints=[_taint("dedicated", "batch")], labels=online),
        make.node(3, labels=online),
        make.node(4, taints=gone, labels={"pool": "batch"}),
    ]
    return make.cluster(nodes, pods)


def _waiting(reason: str, restarts: int = 0) -> Json:
    return {"name": "c", "restartCount": restarts, "state": {"waiting": {"reason": reason}}}


def _taint(key: str, value: str = "", effect: str = "NoSchedule") -> Json:
    return {"key": key, "value": value, "effect": effect}


def _affinity(values: Sequence[str]) -> Json:
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": [*values]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def _apart(app: str) -> Json:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _pod_life_time(make: Builder) -> ExampleCluster:
    no_image = {"initContainerStatuses": [_waiting("ImagePullBackOff")]}
    pods = [
        make.pod("pending", 1, leaves=True, age=8 * DAY, phase="Pending"),
        make.pod("without-image", 1, leaves=True, age=8 * DAY, status=no_image),
        make.pod("young", 1, age=6 * DAY, phase="Pending"),
        make.pod("running", 1, age=8 * DAY),
    ]
    return make.cluster([make.node(1), make.node(2)], pods)


def _failed_pods(make: Builder) -> ExampleCluster:
    no_room = {"reason": "OutOfcpu"}
    terminated: Json = {"name": "c", "state": {"terminated": {"reason": "CreateContainerConfigError", "exitCode": 1}}}
    misconfigured = {"containerStatuses": [terminated]}
    pods = [
        make.pod("no-room", 1, leaves=True, age=2 * HOUR, phase="Failed", status=no_room),
        make.pod("misconfigured", 1, leaves=True, age=2 * HOUR, phase="Failed", status=misconfigured),
        make.pod("young", 1, age=HOUR / 2, phase="Failed", status=no_room),
        make.pod("of-a-job", 1, age=2 * HOUR, owner="job", kind="Job", phase="Failed", status=no_room),
        make.pod("another-reason", 1, age=2 * HOUR, phase="Failed", status={"reason": "Evicted"}),
        make.pod("running", 1, age=2 * HOUR),
    ]
    return make.cluster([make.node(1), make.node(2)], pods)


def _restarts(make: Builder) -> ExampleCluster:
    started = {"name": "init", "restartCount": 40, "state": {"terminated": {"reason": "Completed", "exitCode": 0}}}
    running: Json = {"name": "c", "restartCount": 200, "state": {"running": {}}}
    crash = "CrashLoopBackOff"
    crashes = {"containerStatuses": [_waiting(crash, 60)], "initContainerStatuses": [started]}
    pods = [
        make.pod("crashes", 1, leaves=True, status=crashes),
        make.pod("crashed-often", 1, status={"containerStatuses": [_waiting(crash, 99)]}),
        make.pod("runs-again", 1, status={"containerStatuses": [running]}),
    ]
    return make.cluster([make.node(1), make.node(2)], pods)


def _taints(make: Builder) -> ExampleCluster:
    nodes = [
        make.node(1, taints=[_taint("gone")]),
        make.node(2, taints=[_taint("slow", effect="PreferNoSchedule")]),
        make.node(3, taints=[_taint("dedicated", "batch")]),
        make.node(4, taints=[_taint("maintenance", "soon")]),
        make.node(5),
    ]
    pods = [
        make.pod("on-gone", 1, leaves=True),
        make.pod("on-slow", 2, leaves=True),
        make.pod("tolerates", 1, tolerations=[{"key": "gone", "operator": "Exists"}]),
        make.pod("on-batch", 3),
        make.pod("in-maintenance", 4),
        make.pod("elsewhere", 5),
    ]
    return make.cluster(nodes, pods, away=True)


def _node_affinity(make: Builder) -> ExampleCluster:
    web = {"app": "web"}
    pods = [
        make.pod("on-wrong-disk", 1, leaves=True, labels=web, affinity=_affinity(["ssd"])),
        make.pod("on-right-disk", 2, labels=web, affinity=_affinity(["ssd"])),
        make.pod("fits-nowhere", 1, labels=web, affinity=_affinity(["nvme"])),
        make.pod("another-app", 1, labels={"app": "db"}, affinity=_affinity(["ssd"])),
    ]
    nodes = [make.node(1, labels={"disk": "hdd"}), make.node(2, labels={"disk": "ssd"})]
    return make.cluster(nodes, pods, away=True)


def _anti_affinity(make: Builder) -> ExampleCluster:
    pods = [
        make.pod("avoids-db", 1, leaves=True, labels={"app": "web"}, affinity=_apart("db")),
        make.pod("db", 1, labels={"app": "db"}),
        make.pod("apart", 2, labels={"app": "web"}, affinity=_apart("db")),
        make.pod("dns", 1, namespace="kube-system", labels={"app": "dns"}, affinity=_apart("dns-cache")),
        make.pod("dns-cache", 1, namespace="kube-system", labels={"app": "dns-cache"}),
    ]
    nodes = [make.node(1), make.node(2)]
    return make.cluster(nodes, pods, away=True)


def _duplicates(make: Builder) -> ExampleCluster:
    pods = [
        *(make.pod(f"shop-{index}", 1, leaves=True, namespace="shop", owner="shop") for index in range(4)),
        *(make.pod(f"old-{index}", 1, namespace="shop", owner="old", kind="ReplicationController") for index in (0, 1)),
        *(make.pod(f"blog-{index}", 1) for index in range(4)),
    ]
    nodes = [make.node(1), make.node(2), make.node(3)]
    return make.cluster(nodes, pods, number=2)


def _low_utilization(make: Builder) -> ExampleCluster:
    pods = [
        *(make.pod(f"web-{index}", 1, leaves=index < 4, cpu="400m", priority=index) for index in range(8)),
        make.pod("proxy", 1, namespace="kube-system", cpu="400m"),
    ]
    nodes = [make.node(number) for number in range(1, 6)]
    return make.cluster(nodes, pods)


def _high_utilization(make: Builder) -> ExampleCluster:
    pods = [
        make.pod("small", 1, leaves=True, cpu="400m"),
        make.pod("without-requests", 1, cpu=""),
        make.pod("big", 2, cpu="2"),
    ]
    return make.cluster([make.node(1), make.node(2)], pods)


def _spread(make: Builder) -> ExampleCluster:
    def spread(app: str, when: str) -> Json:
        constraint = {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": when,
            "labelSelector": {"matchLabels": {"app": app}},
        }
        return {"labels": {"app": app}, "topologySpreadConstraints": [constraint]}

    hard, soft, even = (
        spread("hard", "DoNotSchedule"),
        spread("soft", "ScheduleAnyway"),
        spread("even", "DoNotSchedule"),
    )
    pods = [
        *(make.pod(f"hard-{index}", 1, leaves=index < 2, owner="hard", priority=index, **hard) for index in range(4)),
        *(make.pod(f"soft-{index}", 2, leaves=index < 2, owner="soft", priority=index, **soft) for index in range(4)),
        *(make.pod(f"even-{index}", 1 + index % 2, owner="even", **even) for index in range(4)),
    ]
    nodes = [make.node(1, labels={"zone": "a"}), make.node(2, labels={"zone": "b"})]
    return make.cluster(nodes, pods)


def _evictor(make: Builder) -> ExampleCluster:
    scratch: list[Json] = [{"name": "scratch", "emptyDir": {}}]
    claim = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    pods = [
        make.pod("plain", 1, leaves=True),
        make.pod("with-scratch", 1, leaves=True, volumes=scratch),
        make.pod("with-claim", 1, volumes=claim),
        make.pod("young", 1, age=-HOUR),  # it stays younger than `minPodAge` while the test runs
        make.pod("too-big", 1, cpu="5"),
        make.pod("alone", 1, owner=""),
    ]
    nodes = [make.node(1, taints=[_taint("gone")]), make.node(2)]
    return make.cluster(nodes, pods, away=True)
