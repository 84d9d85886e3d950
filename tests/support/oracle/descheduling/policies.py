"""Arguments of each plugin and of the evictor, of which a few are invalid."""

from collections.abc import Callable, Sequence
from typing import Final

from support.oracle.descheduling.clusters import CRITICAL, REASONS
from support.oracle.drawing.constraints import PREFERRED, REQUIRED, TEAMS, selector
from support.oracle.drawing.dice import NAMESPACES, ZONE, Dice
from support.oracle.drawing.resources import WIDGET
from support.oracle.lines import Document

DEFAULT_PROTECTIONS = ("PodsWithLocalStorage", "SystemCriticalPods", "FailedBarePods", "DaemonSetPods")
EXTRA_PROTECTIONS = ("PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims")
SWITCHES = (
    "evictLocalStoragePods",
    "evictDaemonSetPods",
    "evictSystemCriticalPods",
    "evictFailedBarePods",
    "ignorePvcPods",
    "ignorePodsWithoutPDB",
)
OWNER_KINDS = ("ReplicaSet", "StatefulSet", "Job", "DaemonSet")


def evictor(dice: Dice, *, by_priority: bool) -> Document:
    """Arguments of the DefaultEvictor. `by_priority`: whether they may have a threshold."""
    found: Document = {}
    if dice.chance(0.4):
        return found
    if dice.chance(0.3):
        found["podProtections"] = _protections(dice)
    elif dice.chance(0.4):
        found |= dict.fromkeys(dice.some(SWITCHES, 4), True)
    if by_priority and dice.chance(0.3):
        found["priorityThreshold"] = dice.one(
            ({"value": 100}, {"value": 0}, {"value": CRITICAL}, {"name": "high"}, {"name": "low"}, {"name": "none"}, {})
        )
    if dice.chance(0.2):
        found["labelSelector"] = selector(dice)
    if dice.chance(0.2):
        found["minReplicas"] = dice.one((0, 1, 2, 5))
    if dice.chance(0.2):
        found["minPodAge"] = dice.one(("1m0s", "10m0s", "1h0m0s"))
    if dice.chance(0.2):
        found["noEvictionPolicy"] = dice.one(("Preferred", "Mandatory", "Always" if dice.chance(0.1) else ""))
    if dice.chance(0.4):
        found["nodeFit"] = True
        if dice.chance(0.4):
            found["nodeSelector"] = dice.one((f"{ZONE}=a", f"{ZONE} in (a,b)", "disk!=ssd", "!disk", "rack,disk"))
    if dice.chance(0.2):
        found["namespaceLabelSelector"] = _namespace_selector(dice)
    return found


def _protections(dice: Dice) -> Document:
    found: Document = {}
    if dice.chance(0.7):
        found["defaultDisabled"] = dice.some(DEFAULT_PROTECTIONS, 4)
    if dice.chance(0.7):
        found["extraEnabled"] = dice.some(EXTRA_PROTECTIONS, 3)
    if dice.chance(0.5):
        classes = [{"name": name} for name in dice.some(("fast", "slow"), 2)]
        found["config"] = {"PodsWithPVC": {"protectedStorageClasses": classes if dice.chance(0.8) else []}}
    return found


def _namespace_selector(dice: Dice) -> Document:
    found: Document = {}
    if dice.chance(0.7):
        found["matchLabels"] = {"team": dice.one(TEAMS)}
    if dice.chance(0.4):
        found["matchExpressions"] = [{"key": "team", "operator": dice.one(("Exists", "DoesNotExist"))}]
    return found


def _namespaces(dice: Dice) -> Document:
    sides = ("include", "exclude") if dice.chance(0.03) else (dice.one(("include", "exclude")),)
    return {side: dice.some(NAMESPACES, 2) for side in sides}


def _scope(dice: Dice) -> Document:
    found: Document = {}
    if dice.chance(0.2):
        found["namespaces"] = _namespaces(dice)
    if dice.chance(0.2):
        found["labelSelector"] = selector(dice)
    return found


def _life_time(dice: Dice) -> Document:
    found = _scope(dice)
    if dice.chance(0.8):
        found["maxPodLifeTimeSeconds"] = dice.one((0, 60, 600, 1200, 3600))
    if dice.chance(0.3):
        found["states"] = dice.some(("Running", "Pending", "Failed", "NodeLost", *REASONS), 3)
    if dice.chance(0.2):
        found["ownerKinds"] = {dice.one(("include", "exclude")): dice.some(OWNER_KINDS, 2)}
    if dice.chance(0.2):
        found["conditions"] = [_filter(dice) for _ in range(dice.number(1, 2))]
    if dice.chance(0.2):
        found["exitCodes"] = dice.some((0, 1, 137), 2)
    for switch in ("includingInitContainers", "includingEphemeralContainers"):
        if dice.chance(0.4):
            found[switch] = True
    return found


def _filter(dice: Dice) -> Document:
    found: Document = dice.labels({"type": ("Ready",), "status": ("True", "False"), "reason": ("Unschedulable",)}, 0.5)
    if dice.chance(0.4):
        found["minTimeSinceLastTransitionSeconds"] = dice.one((0, 600, 3600))
    return found


def _failed(dice: Dice) -> Document:
    found = _scope(dice)
    if dice.chance(0.7):
        found["minPodLifetimeSeconds"] = dice.one((0, 60, 600))
    if dice.chance(0.3):
        found["reasons"] = dice.some(("NodeLost", "Evicted", *REASONS), 4)
    if dice.chance(0.2):
        found["exitCodes"] = dice.some((0, 1, 137), 2)
    if dice.chance(0.2):
        found["excludeOwnerKinds"] = dice.some(OWNER_KINDS, 2)
    if dice.chance(0.4):
        found["includingInitContainers"] = True
    return found


def _restarts(dice: Dice) -> Document:
    found = {**_scope(dice), "podRestartThreshold": dice.one((1, 2, 4, 10, 0 if dice.chance(0.2) else 3))}
    if dice.chance(0.4):
        found["includingInitContainers"] = True
    if dice.chance(0.3):
        found["states"] = dice.some(("Running", "CrashLoopBackOff", "Error" if dice.chance(0.1) else "Running"), 2)
    return found


def _taints(dice: Dice) -> Document:
    found = _scope(dice)
    if dice.chance(0.5):
        found["includePreferNoSchedule"] = True
    for field in ("excludedTaints", "includedTaints"):
        if dice.chance(0.25):
            found[field] = dice.some(("t1", "t2=x", "t2", "t1=5", "t1="), 2) if dice.chance(0.9) else []
    return found


def _node_affinity(dice: Dice) -> Document:
    return {**_scope(dice), "nodeAffinityType": [] if dice.chance(0.03) else dice.some((REQUIRED, PREFERRED), 2)}


def _duplicates(dice: Dice) -> Document:
    found: Document = {}
    if dice.chance(0.3):
        found["namespaces"] = _namespaces(dice)
    if dice.chance(0.3):
        found["excludeOwnerKinds"] = dice.some(OWNER_KINDS, 2)
    return found


def _spread(dice: Dice) -> Document:
    found = _scope(dice)
    if dice.chance(0.6):
        found["constraints"] = dice.some(("DoNotSchedule", "ScheduleAnyway"), 2)
    if dice.chance(0.5):
        found["topologyBalanceNodeFit"] = dice.chance(0.5)
    return found


def _percentages(dice: Dice, resources: Sequence[str], most: int) -> dict[str, float]:
    amounts = dice.one(((0, 1, 3, 7, 9, most), (7, 14, 20, 28.5, 29, 33, 50, 57, 58, most)))
    return {name: dice.one(amounts) for name in resources}


def _thresholded(dice: Dice) -> list[str]:
    """Few: a node is low only if all are, and no pod leaves if the others have none of a resource."""
    found: list[str] = dice.some(("cpu", "memory", "pods"), dice.one((1, 1, 3)))
    return [*found, WIDGET] if dice.chance(0.1) else found


def _low(dice: Dice) -> Document:
    resources = _thresholded(dice)
    found: Document = {
        "thresholds": _percentages(dice, resources, 101 if dice.chance(0.02) else 60),
        "targetThresholds": _percentages(dice, resources, 60),
    }
    if dice.chance(0.3):
        found["useDeviationThresholds"] = True
    elif dice.chance(0.95):
        for name, percent in found["thresholds"].items():
            found["targetThresholds"][name] = max(percent, found["targetThresholds"][name])
    if dice.chance(0.2):
        found["numberOfNodes"] = dice.one((1, 2))
    if dice.chance(0.2):
        found["evictableNamespaces"] = {"include" if dice.chance(0.1) else "exclude": dice.some(NAMESPACES, 2)}
    if dice.chance(0.2):
        found["evictionLimits"] = {"node": dice.one((0, 1, 2))}
    return found


def _high(dice: Dice) -> Document:
    resources = _thresholded(dice)
    found: Document = {"thresholds": _percentages(dice, resources, 80)}
    if dice.chance(0.2):
        found["numberOfNodes"] = dice.one((1, 2))
    if dice.chance(0.2):
        found["evictableNamespaces"] = {"exclude": dice.some(NAMESPACES, 2)}
    if dice.chance(0.3):
        found["evictionModes"] = ["OnlyThresholdingResources" if dice.chance(0.95) else "All"]
    return found


PLUGINS: Final[dict[str, Callable[[Dice], Document]]] = {
    "PodLifeTime": _life_time,
    "RemoveFailedPods": _failed,
    "RemovePodsHavingTooManyRestarts": _restarts,
    "RemovePodsViolatingNodeTaints": _taints,
    "RemovePodsViolatingNodeAffinity": _node_affinity,
    "RemovePodsViolatingInterPodAntiAffinity": _scope,
    "RemoveDuplicates": _duplicates,
    "LowNodeUtilization": _low,
    "HighNodeUtilization": _high,
    "RemovePodsViolatingTopologySpreadConstraint": _spread,
}
"""The plugins of the Kubernetes descheduler that ours has, and how their arguments are drawn."""
