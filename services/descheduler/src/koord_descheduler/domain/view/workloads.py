"""The workload that controls a pod: its number of replicas, and the owners of its pods, from the folded objects.

A changed object costs work for its own workload only.

Source:
    descheduler spec, 7.8
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from koordcore.events.objects import SCALES, plural_of
from koordcore.protocol.objects import ObjectMeta, OwnerReference, object_from_json
from koordcore.state import ClusterState
from koordcore.state.aggregates import CustomObjectState, WorkloadState
from koordcore.values import codec

from koord_descheduler.domain.view.pods import PodView


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """A workload that controls pods directly, or through ReplicaSets."""

    replicas: int  # Number of replicas that the workload should have
    owners: tuple[str, ...]  # Uids of the owners of its pods. For a Deployment, these are all its ReplicaSets.


def replicas_of(pod: PodView | None, workloads: Mapping[str, WorkloadView]) -> int | None:
    """The replicas that a pod's workload should have; None if there is no pod or no known workload, by uid of the
    controller.
    """
    controller = None if pod is None else pod.controller
    workload = None if controller is None else workloads.get(controller.uid)
    return None if workload is None else workload.replicas


REPLICA_SETS: Final = "replicasets"
DEPLOYMENTS: Final = "deployments"
WITH_REPLICAS: Final = frozenset(
    {REPLICA_SETS, DEPLOYMENTS, "statefulsets", "replicationcontrollers", "clonesets", "advancedstatefulsets", SCALES}
)
"""Plural names of the kinds whose objects have a number of replicas; Scales have that of any other controller."""
_JOB: Final = "Job"


@dataclass(frozen=True, slots=True)
class _Known:
    """What one object says: its uid, its replicas, and the uid of the Deployment that controls it ("" if none does)."""

    uid: str
    replicas: int
    deployment: str = ""


class WorkloadIndex:
    """All controllers that have a number of replicas.

    A ReplicaSet of a Deployment stands for the Deployment, with the pods of all its ReplicaSets. A Job has no scale.
    """

    def __init__(self) -> None:
        self._of_object: dict[str, _Known] = {}
        self._replicas: dict[str, int] = {}
        self._sets_of: dict[str, dict[str, None]] = {}
        self._views: dict[str, WorkloadView] = {}

    @property
    def views(self) -> Mapping[str, WorkloadView]:
        """Uid of a controller -> its workload. It changes with the next `note` or `note_custom`."""
        return self._views

    def note(self, uid: str, state: WorkloadState | None) -> None:
        """None: the workload does not exist any more."""
        has_scale = state is not None and state.object.kind != _JOB
        self._replace(uid, _Known(uid, state.object.replicas) if state is not None and has_scale else None)

    def note_custom(self, id_: str, state: CustomObjectState | None) -> None:
        """Take a custom resource of a kind in `WITH_REPLICAS`; None: it does not exist any more.

        An invalid one counts as absent.
        """
        document = None if state is None else state.object
        self._replace(id_, None if document is None else _read(plural_of(id_), document))

    def _replace(self, id_: str, known: _Known | None) -> None:
        before = self._of_object.pop(id_, None)
        if before == known:
            if known is not None:
                self._of_object[id_] = known
            return
        if before is not None:
            self._replicas.pop(before.uid, None)
            if before.deployment:
                sets = self._sets_of[before.deployment]
                sets.pop(before.uid, None)
                if not sets:
                    del self._sets_of[before.deployment]
        if known is not None:
            self._of_object[id_] = known
            self._replicas[known.uid] = known.replicas
            if known.deployment:
                self._sets_of.setdefault(known.deployment, {})[known.uid] = None
        for each in (before, known):
            if each is not None:
                self._renew(each)

    def _renew(self, changed: _Known) -> None:
        """Renew the views of an object, and of the ReplicaSets that belong to the same Deployment."""
        self._renew_alone(changed.uid)
        for owner in (changed.uid, changed.deployment):
            sets = self._sets_of.get(owner, {})
            if owner in self._replicas and sets:
                view = WorkloadView(self._replicas[owner], tuple(sets))
                self._views.update(dict.fromkeys(sets, view))
            else:
                for uid in sets:
                    self._renew_alone(uid)

    def _renew_alone(self, uid: str) -> None:
        replicas = self._replicas.get(uid)
        if replicas is None:
            self._views.pop(uid, None)
        else:
            self._views[uid] = WorkloadView(replicas, (uid,))


def workload_index(state: ClusterState) -> WorkloadIndex:
    index = WorkloadIndex()
    for uid, workload in state.of_kind(WorkloadState).items():
        index.note(uid, workload)
    for id_, custom in state.of_kind(CustomObjectState).items():
        if plural_of(id_) in WITH_REPLICAS:
            index.note_custom(id_, custom)
    return index


def _read(plural: str, raw: dict[str, Any]) -> _Known | None:
    """None if the object is not valid. The default is one replica."""
    try:
        meta = object_from_json(raw.get("metadata") or {}, ObjectMeta)
    except codec.DecodeError:
        return None
    spec: dict[str, Any] = raw.get("spec") or {}
    replicas = spec.get("replicas", 1)
    if not isinstance(replicas, int) or not meta.uid:
        return None
    owner = _controller(meta) if plural == REPLICA_SETS else None
    is_deployed = owner is not None and owner.kind == "Deployment"
    return _Known(meta.uid, replicas, owner.uid if owner is not None and is_deployed else "")


def _controller(meta: ObjectMeta) -> OwnerReference | None:
    return next((owner for owner in meta.owner_references if owner.controller), None)
