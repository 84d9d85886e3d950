"""Scores of preferred inter-pod affinity."""

from koord_scheduler.domain.loop.commit.work import Placement
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata

HOSTNAME = "kubernetes.io/hostname"


def test_scores_are_rounded_in_double_precision_as_in_kube_scheduler() -> None:
    log = SmallLog()
    for name in "abc":
        log.add_node(node(name, labels={HOSTNAME: name}))
    for name, label in (("x", "a"), ("y", "b")):
        log.add_pod(with_metadata(pod(name, nodeName=label), labels={"app": name}))
    terms = [
        {
            "weight": weight,
            "podAffinityTerm": {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": app}}},
        }
        for app, weight in (("x", 50), ("y", 29))
    ]
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": terms}
    scheduler = Scheduler(log)
    scheduler.follow()
    log.add_pod(pod("p", {"cpu": "1"}, affinity={"podAffinity": preferred}))
    scheduler.follow()
    placed = scheduler.decide()
    assert isinstance(placed, Placement)
    weighted = {top.node: top.parts["InterPodAffinity"] for top in placed.explanation.top}
    assert weighted == {"a": 2 * 100, "b": 2 * 57, "c": 0}  # 100 * (29 / 50) is 57.99...
