"""Compares an answer of the oracle with that of our scheduler. Differences that are wanted have a reason here."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from support.oracle.lines import Document
from support.oracle.ours import Judged
from support.oracle.program import Tried

WEIGHTS: Final = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}
"""Weight of each score in the default profile."""


class Wanted(NamedTuple):
    """A difference that stays."""

    reason: str
    of: Callable[[Tried], bool]  # Whether an answer about a pod is one of this kind
    plugins: tuple[str, ...]  # The plugins whose scores may differ then


def _requests_as_a_whole(tried: Tried) -> bool:
    resources: Document = (tried.pod or {})["spec"].get("resources") or {}
    return bool(resources.get("requests"))


def _has_unreadable_preference(tried: Tried) -> bool:
    return tried.failed.startswith("NodeAffinity before scores")


WANTED: Final = (
    Wanted(
        "the score of NodeResourcesFit of kube-scheduler 1.35 overlooks pod-level requests of the pod to place (NewFit"
        " does not give the scorer the gate), although its filter and the sums of nodes count them; ours counts them",
        _requests_as_a_whole,
        ("NodeResourcesFit",),
    ),
    Wanted(
        "an API server accepts values in preferred node affinity that no label can have, such as Gt -1; kube-scheduler"
        " fails then, for ever if two nodes are feasible; ours reads the number, and no label equals other such values",
        _has_unreadable_preference,
        tuple(WEIGHTS),
    ),
)


class Difference(NamedTuple):
    """One difference about one pod."""

    text: str
    wanted: str = ""  # Why it stays; "" if it is none of `WANTED`


def differences(tried: Tried, ours: Judged) -> Iterator[Difference]:
    """Each difference about a pod that the API server accepts. Scores are compared where the refusals agree."""
    wanted = [each for each in WANTED if each.of(tried)]
    refusals = list(_refusals(tried, ours))
    yield from map(Difference, refusals)
    if tried.failed:
        yield Difference(f"kube-scheduler fails: {tried.failed}", next((each.reason for each in wanted), ""))
    if refusals or tried.failed:
        return
    for plugin, weight in WEIGHTS.items():
        reason = next((each.reason for each in wanted if plugin in each.plugins), "")
        theirs = (tried.scores or {}).get(plugin, {})
        for node in ours.feasible:
            expected = weight * theirs[node].normalized if node in theirs else 0
            score = ours.scores.get(plugin, {}).get(node, 0)
            if score != expected:
                yield Difference(f"{node}: {plugin} scores {expected} in kube-scheduler, {score} in ours", reason)


OTHER_VOLUME_PLUGINS: Final = frozenset({"VolumeRestrictions", "NodeVolumeLimits", "VolumeZone"})
"""Each of these also refuses a claim that cannot be bound. kube-scheduler asks only the first of them."""


def _refusals(tried: Tried, ours: Judged) -> Iterator[str]:
    for node, plugins in ours.refused.items():
        expected = set(tried.refused.get(node, {}))
        if "VolumeBinding" in expected & plugins:
            expected, plugins = expected - OTHER_VOLUME_PLUGINS, plugins - OTHER_VOLUME_PLUGINS
        for plugin in sorted(expected - plugins):
            yield f"{node}: only {plugin} of kube-scheduler refuses it, not ours"
        for plugin in sorted(plugins - expected):
            yield f"{node}: only our {plugin} refuses it, not kube-scheduler's"
        if plugins == expected and (node in ours.feasible) == bool(expected):
            yield f"{node}: feasible for our engine: {node in ours.feasible}, for our plugins: {not plugins}"
