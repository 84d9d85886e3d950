"""Delete all but the first of several pods or workloads with one name. An API server does not let them exist.

A leader that was paused, or whose connection was, may create an object that its successor has created as well. Each of
the two has a uid of its own, so the log does not refuse the second one.
"""

from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.objects import PodSpecDeleted, WorkloadDeleted
from koordcore.state.aggregates import PodSpecState, WorkloadState

from koord_manager.domain.cluster.view import ManagerView


def duplicate_drafts(view: ManagerView, key: str) -> list[Draft]:
    """Return the fact that deletes an object if an older one has its name; empty otherwise, and if it is gone.

    Args:
        key: Kind and id of the aggregate, such as `podspec.<uid>`.
    """
    kind, _, uid = key.partition(".")
    ref = AggregateRef(kind, uid)
    state = view.state.get(ref)
    if isinstance(state, PodSpecState):
        meta = state.object.metadata
        pods = view.state.of_kind(PodSpecState)
        first = min(view.all_named("Pod", meta.namespace, meta.name), key=lambda other: pods[other].added_seq)
        gone = PodSpecDeleted(namespace=meta.namespace, name=meta.name)
    elif isinstance(state, WorkloadState):
        meta = state.object.metadata
        first = min(view.all_named(state.object.kind, meta.namespace, meta.name), key=view.first_seen)
        gone = WorkloadDeleted(namespace=meta.namespace, name=meta.name)
    else:
        return []
    return [Draft(ref, gone, state.seq)] if uid != first else []
