"""Why a pod is pending, as one sentence: the bottleneck, and what would help.

The sentence is a function of one explanation. `koord explain pod`, the read API, the Kubernetes event and the condition
PodScheduled take it from here. Of the groups of nodes that refused the pod, it begins with the one nearest to fitting.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from koordcore.events.explanations import (
    DecisionAbandoned,
    Diagnosis,
    GangProgress,
    NodeFailure,
    PodGated,
    PodUnschedulable,
    PreemptionDiagnosis,
    QuotaShortage,
    Shortage,
)
from koordcore.events.pod import PlacementExplanation
from koordcore.protocol.resource_names import CPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koordcore.values.quantity import of_milli

MOST_CHARACTERS: Final = 400
"""Largest length of the sentence."""
MOST_MESSAGE: Final = 1024
"""Largest length of the message of a Kubernetes event."""
_MOST_OTHERS: Final = 2
"""Largest number of groups of nodes that are named besides the nearest one."""
_MOST_PART: Final = 120
"""Largest length of a reason, or of a list of names, in the sentence."""
_MOST_VICTIMS: Final = 3
"""Largest number of pods that are named."""
_BY_SHAPE: Final = frozenset({"NodeName", "NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodeRefusals"})
"""Plugins that refuse a node by what it is, before any amount is compared. Its amounts may suit or not."""
_GPU: Final = "GPUs"
_OF_GPU: Final = (GPU_CORE, GPU_MEMORY_RATIO, GPU_MEMORY)
_PERCENT: Final = (GPU_CORE, GPU_MEMORY_RATIO)
"""Counted in hundredths of a GPU."""
_INSUFFICIENT: Final = "Insufficient "
_NEEDS: Final = "needs "
_TOO_MANY_PODS: Final = "Too many pods"
_PODS: Final = "pods"
_GIB: Final = 1 << 30
_UNITS: Final = (("Ti", 1 << 40), ("Gi", _GIB), ("Mi", 1 << 20), ("Ki", 1 << 10))
_AVAILABLE: Final = " nodes are available: "
_LENT: Final = ("kubernetes.io/batch-", "kubernetes.io/mid-")
_NEVER: Final = "preemptionPolicy=Never"
_REMEDIES: Final[Mapping[str, str]] = {
    "NodeUnschedulable": "`koord uncordon` or other nodes would help",
    "TaintToleration": "a toleration or nodes without the taint would help",
    "NodeAffinity": "nodes with the wanted labels would help",
    "VolumeBinding": "a volume that suits the claims would help",
}
"""What helps a pod that a plugin refuses whatever pods leave."""


class Missing(NamedTuple):
    """One thing that every node of a group lacks."""

    what: str  # Name of a resource, `GPUs`, or a phrase such as `2 whole cores in one zone`
    needs: str = ""  # What the pod needs of it; "" if unknown
    most: str = ""  # Largest free amount of a node; "" if unknown
    largest: str = ""  # What the largest node has in all; "" if unknown
    share: float = 1.0  # Missing part of the need on the node with most of it, within 0..1; 1 if unknown
    is_too_small: bool = False  # Whether no node of the group has enough in all


class Group(NamedTuple):
    """The nodes that one plugin refused for one reason."""

    plugin: str
    reason: str  # As kube-scheduler or the plugin says it
    nodes: int  # Number of the nodes
    missing: tuple[Missing, ...]  # Empty if the nodes lack nothing that can be counted
    helps: bool  # Whether removing pods may help
    failure: NodeFailure

    @property
    def distance(self) -> tuple[object, ...]:
        """Sort key: the group nearest to fitting comes first."""
        things = max(1, len(self.missing))
        share = max((each.share for each in self.missing), default=1.0)
        by_shape = self.plugin in _BY_SHAPE
        return (by_shape, things, not self.helps, share, -self.nodes, self.plugin, self.reason, self.missing)


def pending_sentence(event: PodUnschedulable | PodGated | DecisionAbandoned) -> str:
    """At most `MOST_CHARACTERS` characters. Amounts are quantities as kubectl shows them."""
    return _cut(_structured(event, is_lasting=False) or _as_told(event), MOST_CHARACTERS)


def condition_message(event: PodUnschedulable | PodGated) -> str:
    """The message of the event, with the sentence behind it if it adds something and there is room for it.

    Free amounts are left out: they change between attempts whose messages are equal.
    """
    added = _cut(_structured(event, is_lasting=True), MOST_CHARACTERS)
    whole = f"{event.message.removesuffix('.')}. {added}" if added else event.message
    return whole if len(whole) <= MOST_MESSAGE else event.message[:MOST_MESSAGE]


def groups_of(diagnosis: Diagnosis) -> list[Group]:
    """The refused nodes by plugin and reason: the group nearest to fitting, then the others, the largest first."""
    found = [
        Group(each.plugin, each.reason, each.count, _missing(each), each.preempt_might_help, each)
        for each in diagnosis.failures
    ]
    found.sort(key=lambda group: group.distance)
    return [*found[:1], *sorted(found[1:], key=lambda group: -group.nodes)]


def amount_for(resource: str, amount: int, *, up: bool) -> str:
    """An amount as kubectl shows it: `1500m` for cpu, `62.6Gi` for bytes, else the number.

    Args:
        up: Whether bytes are rounded up to a tenth, for a need; else down, for what is free.
    """
    if resource == CPU:
        return of_milli(amount).canonical()
    if not (resource.endswith(("memory", "storage")) or resource.startswith("hugepages-")):
        return str(amount)
    unit, size = next((each for each in _UNITS if amount >= each[1]), ("", 1))
    tenths = -(-amount * 10 // size) if up else amount * 10 // size
    return f"{tenths / 10:g}{unit}"


def _structured(event: PodUnschedulable | PodGated | DecisionAbandoned, *, is_lasting: bool) -> str:
    """The sentence from the facts of an explanation; "" if it has none, as in logs of earlier versions."""
    match event:
        case PodGated():
            # The members that exist and are placed become more while the message stays.
            return "" if event.gang is None or is_lasting else gang_sentence(event.gang)
        case PodUnschedulable(diagnosis=Diagnosis() as diagnosis):
            if diagnosis.quota is not None:
                return _joined(_of_quota(diagnosis.quota, is_lasting=is_lasting), _preempted(diagnosis.preemption))
            return _of_nodes(groups_of(diagnosis), diagnosis, event.explanation, is_lasting=is_lasting)
        case _:
            return ""


def _as_told(event: PodUnschedulable | PodGated | DecisionAbandoned) -> str:
    told = event.reason if isinstance(event, DecisionAbandoned) else event.message
    if isinstance(event, PodUnschedulable) and told.startswith(f"0/{event.explanation.nodes_considered}{_AVAILABLE}"):
        told = told.partition(_AVAILABLE)[2]
    return told[:1].upper() + told[1:] if told[:1].islower() else told


# --- gangs and quotas ------------------------------------------------------------------------------------------------


def gang_sentence(gang: GangProgress) -> str:
    """Such as `Gang default/training: 0 of 3 placed, 2 of 3 exist: waits for 1 more pod.`"""
    return f"Gang {gang.gang}: {gang_progress(gang)}."


def gang_progress(gang: GangProgress) -> str:
    held = f", {gang.held_back} of them cannot be scheduled" if gang.held_back else ""
    lacking = gang.needs - (gang.exist - gang.held_back)
    waits = (
        f"for {lacking} more {'pod' if lacking == 1 else 'pods'}" if lacking > 0 else f"until {gang.needs} have a node"
    )
    return f"{gang.placed} of {gang.needs} placed, {gang.exist} of {gang.needs} exist{held}: waits {waits}"


def _of_quota(quota: QuotaShortage, *, is_lasting: bool) -> str:
    def text(amount: int, *, up: bool = False) -> str:
        return amount_for(quota.resource, amount, up=up)

    needs = f"the pod needs {text(quota.needs, up=True)}"
    limit = f"its {quota.kind} is {text(quota.limit)}"
    used = "" if is_lasting else f", {text(quota.used, up=True)} of it used"
    lead = f"Quota {quota.quota} has too little {quota.resource}: {needs}, {limit}{used}."
    own = f"pods of {quota.quota} leave"
    match quota.kind:
        case "max":
            return f"{lead} It helps if {own} or its max grows."
        case "min":
            return f"{lead} It helps if {own} that must not be preempted, or its min grows."
        case _ if quota.above_min:
            names = " and ".join(
                name if is_lasting else f"{name} ({text(amount)})" for name, amount in sorted(quota.above_min.items())
            )
            return f"{lead} It helps if {own}, or of {names}, which borrow above their min."
        case _:
            return f"{lead} It helps if {own} or the cluster grows."


# --- nodes -----------------------------------------------------------------------------------------------------------


def _of_nodes(
    groups: Sequence[Group], diagnosis: Diagnosis, explanation: PlacementExplanation, *, is_lasting: bool
) -> str:
    if not groups:
        return ""
    total = max(explanation.nodes_considered, sum(group.nodes for group in groups))
    helps = _help(groups[0], diagnosis.preemption)
    lead = _lead(groups[0], total, is_only=len(groups) == 1, is_lasting=is_lasting)
    others = [_counted(group, f"{group.nodes}", is_lasting=is_lasting) for group in groups[1:]]
    for named in range(min(_MOST_OTHERS, len(others)), -1, -1):
        rest = sum(group.nodes for group in groups[1 + named :])
        left = [f"{rest} {'does' if rest == 1 else 'do'} not suit for other reasons"] if rest else []
        told = f"{'; '.join([lead, *others[:named], *left])}. {helps}"
        if len(told) <= MOST_CHARACTERS:
            return told
    return f"{_cut(lead, max(_MOST_PART, MOST_CHARACTERS - len(helps) - 2))}. {helps}"


def _lead(group: Group, total: int, *, is_only: bool, is_lasting: bool) -> str:
    predicate = _predicate(group, is_lasting=is_lasting)
    if is_only and group.nodes == total:
        if group.missing and all(each.largest == "0" for each in group.missing):
            return f"No node offers {_listed(each.what for each in group.missing)}"
        return f"The only node {_singular(predicate)}" if total == 1 else f"All {total} nodes {predicate}"
    lead = _counted(group, f"{group.nodes} of {total} nodes", is_lasting=is_lasting)
    return lead.replace(" lack", " only lack", 1) if len(group.missing) == 1 else lead


def _counted(group: Group, nodes: str, *, is_lasting: bool) -> str:
    predicate = _predicate(group, is_lasting=is_lasting)
    return f"{nodes} {_singular(predicate) if group.nodes == 1 else predicate}"


def _singular(predicate: str) -> str:
    return f"lacks {predicate.removeprefix('lack ')}" if predicate.startswith("lack ") else predicate


def _predicate(group: Group, *, is_lasting: bool) -> str:
    """What is wrong with the nodes of a group, to be read after their number."""
    if group.missing:
        return f"lack {_listed(_short(each, is_lasting=is_lasting) for each in group.missing)}"
    reason = group.reason.removeprefix("node(s) ")
    return _cut(reason if reason != group.reason else f"are refused by {group.plugin}: {reason}", _MOST_PART)


def _short(missing: Missing, *, is_lasting: bool) -> str:
    if not missing.needs:
        return missing.what
    if is_lasting or not missing.most:
        return f"{missing.what} (needs {missing.needs})"
    if missing.is_too_small:
        return f"{missing.what} (needs {missing.needs}, the largest has {missing.largest})"
    return f"{missing.what} (needs {missing.needs}, at most {missing.most} free)"


def _help(group: Group, preemption: PreemptionDiagnosis | None) -> str:
    if preempted := _preempted(preemption):
        return preempted
    if not group.helps:
        remedy = _remedy(group)
        return f"Removing pods does not help{f': {remedy}' if remedy else ''}."
    if preemption is None or not preemption.failed_message:
        return "It helps if pods leave there."
    if _NEVER in preemption.failed_message:
        return "It helps if pods leave there, but the preemptionPolicy of this pod is Never."
    return "It helps if pods leave there; preemption found none of lower priority that make room."


def _remedy(group: Group) -> str:
    too_small = [each for each in group.missing if each.is_too_small]
    if not too_small:
        return _REMEDIES.get(group.plugin, "")
    if any(each.what.startswith(_LENT) for each in too_small):
        return "colocation offers these resources, if it is on and the nodes report their usage"
    if all(each.largest == "0" for each in too_small):
        return "nodes that offer them would help"
    return "larger nodes or smaller requests would help"


def _preempted(preemption: PreemptionDiagnosis | None) -> str:
    if preemption is None or not preemption.victims:
        return ""
    names = [f"{each.namespace}/{each.name}" for each in preemption.victims]
    left = f"{len(names)} pods have"
    if len(names) <= _MOST_VICTIMS and sum(map(len, names)) <= _MOST_PART:
        left = f"{_listed(names)} {'has' if len(names) == 1 else 'have'}"
    return f"It fits on {preemption.node} when {left} left (preemption)."


def _missing(failure: NodeFailure) -> tuple[Missing, ...]:
    if failure.shortages:
        return tuple(_of_shortages(failure.shortages))
    parts = failure.reason.split(", ")
    if not all(part.startswith((_INSUFFICIENT, _NEEDS)) or part == _TOO_MANY_PODS for part in parts):
        return ()
    whats = [part.removeprefix(_INSUFFICIENT).removeprefix(_NEEDS) for part in parts]
    whats = [f"room for more {_PODS}" if what == _TOO_MANY_PODS else what for what in whats]
    if failure.needs and len(whats) == 1:
        return (Missing(whats[0], failure.needs),)
    return tuple(Missing(_GPU if what in _OF_GPU else what) for what in _once(whats))


def _of_shortages(shortages: Iterable[Shortage]) -> Iterable[Missing]:
    """One entry for each resource. The amounts of GPUs are one thing: the entry with the largest missing share."""
    found: dict[str, Missing] = {}
    for each in shortages:
        what = _GPU if each.resource in _OF_GPU else each.resource
        what = f"room for more {_PODS}" if what == _PODS else what
        share = (each.needs - each.most) / each.needs if each.needs > 0 else 1.0
        missing = Missing(
            what,
            _text(each.resource, each.needs, up=True),
            _text(each.resource, each.most),
            _text(each.resource, each.largest),
            share,
            each.largest < each.needs,
        )
        known = found.get(what)
        if known is None or (missing.share, missing.needs) > (known.share, known.needs):
            found[what] = missing
    return found.values()


def _text(resource: str, amount: int, *, up: bool = False) -> str:
    return f"{amount / 100:g}" if resource in _PERCENT else amount_for(resource, amount, up=up)


def _once(names: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(_GPU if name in _OF_GPU else name for name in names)


def _listed(names: Iterable[str]) -> str:
    known = list(names)
    return known[0] if len(known) == 1 else f"{', '.join(known[:-1])} and {known[-1]}"


def _joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
