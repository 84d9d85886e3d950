"""A leading scheduler that decides a long churn of pods is as large as what lives.

Each life has a node, a namespace, labels, an image and a host port of its own, and constraints about pods with its
labels. One of its pods fits nowhere.
"""

from typing import Any

import pytest
from koord_scheduler.domain.cluster import equivalence_classes, forgetting
from koord_scheduler.domain.engine import answers, engine, view
from koordcore.events.objects import PodSpecDeleted
from koordcore.protocol.objects import Pod, pod_from_json
from koordcore.state import shared_parts
from support.reachable import container_sizes
from support.scheduler.scheduling import Scheduler, SmallLog, node

LIVES = 100
"""Lives of each half of the churn."""
SLACK = 40
JOURNALS = {".nodes.load._rows", ".nodes.shape._rows"}
"""They have a limit of 8,192 entries."""
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def pod_of(life: int, uid: str, cpu: str) -> Pod:
    selector = {"matchLabels": {"app": f"app-{life}"}}
    container = {
        "name": "main",
        "image": f"registry/app:{life}",
        "resources": {"requests": {"cpu": cpu}},
        "ports": [{"hostPort": 1000 + life, "containerPort": 80}],
    }

    def spread(key: str, what: str) -> dict[str, Any]:
        return {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": what, "labelSelector": selector}

    near = {"weight": 3, "podAffinityTerm": {"topologyKey": ZONE, "labelSelector": selector}}
    apart = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"not": f"app-{life}"}}}
    spec = {
        "containers": [container],
        "priority": life % 7,
        "topologySpreadConstraints": [spread(ZONE, "ScheduleAnyway"), spread(HOST, "DoNotSchedule")],
        "affinity": {
            "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [near]},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]},
        },
    }
    meta = {"namespace": f"ns-{life}", "name": uid, "uid": uid, "labels": {"app": f"app-{life}"}}
    return pod_from_json({"metadata": meta, "spec": spec})


def live(scheduler: Scheduler, life: int) -> None:
    """Let a node and its pods come, be decided and go."""
    log, now, name = scheduler.log, 30.0 * life, f"node-{life}"
    taints = [{"key": "t", "value": name, "effect": "PreferNoSchedule"}]
    log.add_node(node(name, labels={HOST: name, ZONE: f"zone-{life % 3}"}, taints=taints))
    pods = {f"{kind}-{life}": cpu for kind, cpu in (("first", "1"), ("second", "1"), ("huge", "99"))}
    for uid, cpu in pods.items():
        log.add_pod(pod_of(life, uid, cpu))
    scheduler.run(now)
    assert [bool(scheduler.state.pods[uid].node) for uid in pods] == [True, True, False]
    scheduler.explanations.clear()
    for uid in pods:
        log.say("podspec", uid, PodSpecDeleted(namespace=f"ns-{life}", name=uid))
    scheduler.run(now + 15.0)
    log.remove_node(name)
    scheduler.run(now + 15.0)


@pytest.mark.deep
def test_a_leading_scheduler_is_as_large_as_what_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (forgetting, "_FEWEST"),
        (equivalence_classes, "_REMEMBERED"),
        (engine, "_FILTERS_KEPT"),
        (answers, "MOST_KEPT"),
        (view, "MOST_KEPT"),
        (shared_parts, "MOST_PARTS"),
    ):
        monkeypatch.setattr(module, name, 16)
    scheduler = Scheduler(SmallLog())
    for name in ("a", "b"):
        scheduler.log.add_node(node(name, cpu="8", labels={HOST: name, ZONE: "zone-0"}))
    for life in range(LIVES):
        live(scheduler, life)
    before = container_sizes(scheduler.state)
    for life in range(LIVES, 2 * LIVES):
        live(scheduler, life)
    after = container_sizes(scheduler.state)

    grown = {path: after[path] - before[path] for path in after if path not in JOURNALS}
    assert {path: more for path, more in grown.items() if more > SLACK} == {}
