"""Find the nodes whose promised batch and mid resources change with a fact.

A node shows at least what its unfinished pods request of these resources (`node_writes`). So a pod that comes, ends or
leaves may make a write to the Node object pending, although the computed amounts stay.

Source:
    decision 0055
"""

from typing import Final

from koordcore.events.envelope import AggregateRef, Event, name_token
from koordcore.events.gateway import PodBound
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken
from koordcore.events.objects import PodSpecAdded, PodSpecChanged, PodSpecDeleted
from koordcore.protocol.objects import Pod
from koordcore.protocol.resource_names import LENT
from koordcore.state.aggregates import NodeLedger, PodSpecState, PodState

from koord_manager.domain.cluster.amounts import FINISHED
from koord_manager.domain.cluster.view import ManagerView

_LENT: Final = frozenset(LENT)


class Promises:
    """The pods that request batch or mid resources of a node, with the token of the node."""

    def __init__(self, view: ManagerView | None = None) -> None:
        self._node: dict[str, str] = {}
        if view is not None:
            for uid in view.state.of_kind(PodSpecState):
                self._pod_changed(view, uid)
            for token, ledger in view.state.of_kind(NodeLedger).items():
                self._node.update((uid, token) for uid, pod in ledger.pods.items() if pod.requests.keys() & LENT)

    def changed_by(self, view: ManagerView, ref: AggregateRef, event: Event) -> set[str]:
        """Return the tokens of the nodes of which a folded fact may have changed the promised amounts."""
        match event:
            case NodeResourcesTaken(pods=pods):
                uids = [pod.uid for pod in pods if pod.requests.keys() & LENT]
                self._node.update((uid, ref.id) for uid in uids)
                return {ref.id} if uids else set()
            case NodeResourcesReturned(pods=uids):
                left = [uid for uid in uids if self._node.pop(uid, "")]
                return {ref.id} if left else set()
            case PodSpecAdded() | PodSpecChanged() | PodBound() | PodSpecDeleted():
                return self._pod_changed(view, ref.id)
            case _:
                return set()

    def _pod_changed(self, view: ManagerView, uid: str) -> set[str]:
        before, spec = self._node.pop(uid, ""), view.state.of_kind(PodSpecState).get(uid)
        after = ""
        if spec is not None and _requests_lent(spec.object):
            placed = view.state.of_kind(PodState).get(uid)
            after = name_token(spec.object.spec.node_name or (placed.node if placed is not None else ""))
        if after:
            self._node[uid] = after
        return {before, after} - {""}


def _requests_lent(pod: Pod) -> bool:
    """Return whether an unfinished pod requests batch or mid resources. A new leader asks it of every pod."""
    spec = pod.spec
    listed = (each.resources.requests for each in (*spec.containers, *spec.init_containers))
    return pod.status.phase not in FINISHED and any(
        not _LENT.isdisjoint(amounts) for amounts in (*listed, spec.overhead or {})
    )
