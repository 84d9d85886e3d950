"""A case as our descheduler sees it: which pods its evictor accepts, and which its plugin evicts in a round."""

from typing import NamedTuple

from koord_descheduler.domain.framework.eviction import EvictionLimiter, EvictionLimits
from koord_descheduler.domain.framework.plugin import BalancePlugin, DeschedulePlugin
from koord_descheduler.domain.framework.registry import SharedState
from koord_descheduler.domain.framework.round import Profile, run_round
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_descheduler.domain.plugins.upstream.default_evictor import DefaultEvictor
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.nodes import node_view
from koord_descheduler.domain.view.pods import pod_view
from koordcore.protocol.objects import node_from_json, object_from_json, pod_from_json
from koordcore.protocol.scheduling_objects import PodDisruptionBudget
from koordcore.protocol.storage import PersistentVolumeClaim
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import unix_seconds
from support.oracle.lines import Document


class Judged(NamedTuple):
    """What our descheduler makes of a case. Pods are uids."""

    invalid: str = ""  # Why the arguments are refused; all else is empty then
    evictable: frozenset[str] = frozenset()
    fitting: frozenset[str] = frozenset()
    evicted: frozenset[str] = frozenset()


def judge(case: Document) -> Judged:
    view = view_of(case)
    shared = SharedState(priority_classes=view.priority_classes)
    made: list[object] = []
    for name, given in (("DefaultEvictor", case["evictor"]), (case["plugin"], case["args"])):
        kind = BUILT_IN[name]
        try:
            args = kind.decode(given)
            for error in kind.check(args):
                return Judged(invalid=f"{name}: {error}")
            made.append(kind.make(args, shared))
        except (InvalidInput, ValueError) as error:
            return Judged(invalid=f"{name}: {error}")
    evictor, plugin = made
    assert isinstance(evictor, DefaultEvictor)
    deschedule = [plugin] if isinstance(plugin, DeschedulePlugin) else []
    balance = [plugin] if isinstance(plugin, BalancePlugin) else []
    profile = Profile(name="oracle", deschedule=deschedule, balance=balance, filters=[evictor], evict=evictor)
    outcome = run_round([profile], view, EvictionLimiter(EvictionLimits()))
    assert not outcome.faults, outcome.faults
    return Judged(
        evictable=frozenset(pod.uid for pod in view.pods if not evictor.refusals(pod, view)),
        fitting=frozenset(pod.uid for pod in view.pods if not evictor.pre_eviction_refusals(pod, view)),
        evicted=frozenset(attempt.pod.uid for attempt in outcome.attempts),
    )


def view_of(case: Document) -> ClusterView:
    budgets: dict[str, list[PodDisruptionBudget]] = {}
    for document in case["podDisruptionBudgets"]:
        budget = object_from_json(document, PodDisruptionBudget)
        budgets.setdefault(budget.metadata.namespace, []).append(budget)
    claims = [object_from_json(each, PersistentVolumeClaim) for each in case["persistentVolumeClaims"]]
    return ClusterView(
        now=unix_seconds(case["now"]),
        nodes=tuple(node_view(node_from_json(each)) for each in case["nodes"]),
        pods=tuple(pod_view(pod_from_json(each)) for each in case["pods"]),
        namespaces={each["metadata"]["name"]: each["metadata"]["labels"] for each in case["namespaces"]},
        claims={(claim.metadata.namespace, claim.metadata.name): claim for claim in claims},
        budgets=budgets,
        priority_classes={each["metadata"]["name"]: each["value"] for each in case["priorityClasses"]},
    )
