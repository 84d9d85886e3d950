"""Random cases of one plugin each, drawn so that it finds pods to evict and the evictor lets most of them go."""

from koord_descheduler.domain.plugins.upstream.utilization import usages
from support.oracle.descheduling.clusters import CRITICAL, cluster, rank
from support.oracle.descheduling.ours import view_of
from support.oracle.descheduling.policies import PLUGINS, evictor
from support.oracle.drawing.dice import Dice
from support.oracle.lines import Document

SPREAD = "RemovePodsViolatingTopologySpreadConstraint"
BY_RANK = ("RemovePodsViolatingInterPodAntiAffinity", "LowNodeUtilization", "HighNodeUtilization")
"""Plugins that sort pods by rank. Their sort takes any order for pods of one rank, so ranks differ in their cases."""

LEANINGS = {
    "RemoveFailedPods": ("failed", "reasons"),
    "RemovePodsViolatingNodeTaints": ("taints",),
    "RemovePodsViolatingNodeAffinity": ("node affinity",),
    "RemovePodsViolatingInterPodAntiAffinity": ("podAntiAffinity", "alike"),
    "RemoveDuplicates": ("alike",),
    SPREAD: ("spread", "alike"),
}
"""What the pods of a case often have, by plugin."""


def case(seed: int) -> Document:
    dice = Dice(seed)
    plugin = dice.one([*PLUGINS])
    # The Kubernetes descheduler reads requests from the spec. Ours counts what kubelets admitted, as kube-scheduler.
    dice.lean("resize", 0)
    for feature in LEANINGS.get(plugin, ()):
        dice.lean(feature, 5)
    found = cluster(dice)
    if plugin in BY_RANK:
        _differ(dice, found["pods"])
    elif plugin == SPREAD:
        for number, pod in zip(_shuffled(dice, len(found["pods"])), found["pods"], strict=True):
            pod["spec"]["priority"] = number
    found |= {"plugin": plugin, "args": PLUGINS[plugin](dice), "evictor": evictor(dice, by_priority=plugin != SPREAD)}
    if "thresholds" in found["args"] and dice.chance(0.7):
        _aim(dice, found)
    return found


def _aim(dice: Dice, case: Document) -> None:
    """Let thresholds be what nodes use, in whole percent or exactly."""
    args, view = case["args"], view_of(case)
    nodes = usages(view.nodes, view, args["thresholds"])
    for resource in args["thresholds"]:
        shares = sorted(min(each.percent(resource), 100.0) for each in nodes)
        if dice.chance(0.5):
            shares = [float(int(share)) for share in shares]
        low = dice.one(shares[: max(1, len(shares) - 1)])
        args["thresholds"][resource] = low
        if "targetThresholds" in args:
            args["targetThresholds"][resource] = dice.one([share for share in shares if share >= low])


def _differ(dice: Dice, pods: list[Document]) -> None:
    """Give pods a rank that no other has."""
    ranks: set[object] = set()
    for pod in pods:
        while rank(pod) in ranks:
            pod["spec"]["priority"] = dice.number(-100, 2000)
        ranks.add(rank(pod))


def _shuffled(dice: Dice, count: int) -> list[int]:
    return sorted(range(1, count + 1), key=lambda _: dice.number(0, CRITICAL))
