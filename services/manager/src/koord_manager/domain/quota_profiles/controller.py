"""Keep the root quotas of ElasticQuotaProfiles up to date with the nodes that the profiles select.

If a profile or any node changed, the root quota is computed, and recorded if it differs. Without an API server, a
quota object that differs from the computed quota is corrected by a further fact. After the deletion of a profile, its
recorded root quota is dropped, and its quota object stays.

Source:
    manager spec, 14
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.events.quota import QuotaProfileDropped, QuotaProfileRendered
from koordcore.protocol import keys
from koordcore.protocol.objects import Node, object_from_json
from koordcore.state.aggregates import CustomObjectState, QuotaProfileState
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controller_names import QUOTA_PROFILE
from koord_manager.domain.quota_profiles.root_quota import ElasticQuotaProfile, RootQuota, root_quota

PROFILES: Final = "elasticquotaprofiles"
QUOTAS: Final = "elasticquotas"
INTERVAL_SECONDS: Final = 10
_API_VERSION: Final = "scheduling.sigs.k8s.io/v1alpha1"


class QuotaProfileController:
    """Computes the root quotas of profiles, and remembers from which versions each was computed last.

    Args:
        keeps_objects: Whether this controller also writes the quota objects. Otherwise the gateway writes them.
    """

    def __init__(self, *, keeps_objects: bool = True) -> None:
        self._keeps_objects = keeps_objects
        self._last: datetime | None = None
        self._nodes: list[Node] | None = None
        self._rendered: dict[str, tuple[int, int]] = {}

    def take(self, view: ManagerView, now: datetime) -> list[str]:
        """Return the ids of all profiles, except those in a back-off, if ten seconds have passed since the last run.

        Deleted profiles whose root quota is still recorded are included. Otherwise return an empty list.
        """
        if self._last is not None and (now - self._last).total_seconds() < INTERVAL_SECONDS:
            return []
        self._last, self._nodes = now, None
        profiles = [id_ for id_, _ in view.customs(PROFILES)]
        self._rendered = {id_: self._rendered[id_] for id_ in profiles if id_ in self._rendered}
        view.queue.resync(QUOTA_PROFILE, dict.fromkeys([*profiles, *view.state.of_kind(QuotaProfileState)]))
        return view.queue.take(QUOTA_PROFILE)

    def decide(self, view: ManagerView, id_: str) -> list[Draft]:
        """Return the fact that brings the root quota of a profile up to date, or that drops it with its profile.

        Return an empty list if it is up to date, or if a deleted profile has none.

        Args:
            view: The folded state of the cluster.
            id_: Id of the profile, `<namespace>=<name>`.
        """
        stored = view.state.of_kind(CustomObjectState).get(f"{PROFILES}={id_}")
        state = view.state.of_kind(QuotaProfileState).get(id_)
        if stored is None:
            return [Draft(AggregateRef("quotaprofile", id_), QuotaProfileDropped(), state.seq)] if state else []
        inputs = (stored.seq, view.node_version)
        if self._rendered.get(id_) != inputs or state is None:
            if self._nodes is None:
                self._nodes = [node for token in view.nodes() if (node := view.node(token)) is not None]
            event = render(stored, self._nodes)
            if is_news(state, event):
                return [Draft(AggregateRef("quotaprofile", id_), event, state.seq if state else 0)]
            self._rendered[id_] = inputs  # only now: what the log refuses is rendered again in the next round
        if not self._keeps_objects or state is None or state.fault:
            return []
        return [*object_drafts(view, state), *tree_id_drafts(view, id_, stored, state)]


def render(stored: CustomObjectState, nodes: Iterable[Node]) -> QuotaProfileRendered:
    """Return the event with the computed root quota of a profile, or with the reason why the profile is not valid.

    The event names only the labels and annotations that the profile sets. Those that others set on the quota object
    belong to them: recorded here, an old value of theirs would later replace a newer one.

    Args:
        stored: State of the profile object.
        nodes: All nodes.
    """
    profile = ElasticQuotaProfile()
    try:
        profile = object_from_json(stored.object, ElasticQuotaProfile)
        quota = root_quota(profile, nodes)
    except (InvalidInput, codec.DecodeError) as error:
        return QuotaProfileRendered(
            quota_namespace=profile.metadata.namespace,
            quota_name=profile.spec.quota_name,
            fault=str(error),
            profile_version=stored.seq,
        )
    return _event(quota, stored.seq)


def _event(quota: RootQuota, version: int) -> QuotaProfileRendered:
    return QuotaProfileRendered(
        quota_namespace=quota.namespace,
        quota_name=quota.name,
        labels=quota.labels,
        annotations=quota.annotations,
        min=quota.min,
        max=quota.max,
        total=quota.total,
        unschedulable=quota.unschedulable,
        nodes=quota.nodes,
        profile_version=version,
    )


def is_news(state: QuotaProfileState | None, event: QuotaProfileRendered) -> bool:
    """Return whether a computed root quota has to be recorded, because it differs from the recorded one.

    Args:
        state: Recorded root quota, or None if there is none.
        event: Computed root quota.
    """
    if state is None:
        return True
    if event.fault:
        return event.fault != state.fault
    published = (
        state.quota_namespace,
        state.quota_name,
        state.labels,
        state.annotations,
        state.min,
        state.max,
        state.fault,
    )
    return published != (
        event.quota_namespace,
        event.quota_name,
        event.labels,
        event.annotations,
        event.min,
        event.max,
        event.fault,
    )


def object_drafts(view: ManagerView, state: QuotaProfileState) -> list[Draft]:
    """Return the fact that corrects the ElasticQuota object, or an empty list if it equals the recorded root quota."""
    stored = view.custom(QUOTAS, state.quota_namespace, state.quota_name)
    existing: dict[str, Any] = stored.object if stored else {}
    document = with_root_quota(existing, state)
    if document == existing:
        return []
    ref = custom_ref(QUOTAS, state.quota_namespace, state.quota_name)
    return [Draft(ref, CustomObjectObserved(object=document), view.state.last_seq(ref))]


def with_root_quota(existing: dict[str, Any], quota: QuotaProfileRendered | QuotaProfileState) -> dict[str, Any]:
    """Return an ElasticQuota object with a computed root quota. Labels and annotations that others have set stay.

    Args:
        existing: The stored object; empty if there is none.
        quota: The root quota.
    """
    metadata: dict[str, Any] = existing.get("metadata") or {}
    return {
        "apiVersion": _API_VERSION,
        "kind": "ElasticQuota",
        **existing,
        "metadata": {
            **metadata,
            "namespace": quota.quota_namespace,
            "name": quota.quota_name,
            "labels": {**(metadata.get("labels") or {}), **quota.labels},
            "annotations": {**(metadata.get("annotations") or {}), **quota.annotations},
        },
        "spec": {**(existing.get("spec") or {}), "min": quota.min, "max": quota.max},
    }


def tree_id_drafts(view: ManagerView, id_: str, stored: CustomObjectState, state: QuotaProfileState) -> list[Draft]:
    """Return the fact that writes the generated tree id to the profile's label, or an empty list if it has the label.

    Source:
        manager spec, 14 (1)
    """
    document: dict[str, Any] = stored.object
    metadata: dict[str, Any] = document.get("metadata") or {}
    labels: dict[str, str] = metadata.get("labels") or {}
    if labels.get(keys.QUOTA_TREE_ID):
        return []
    labels = {**labels, keys.QUOTA_TREE_ID: state.labels[keys.QUOTA_TREE_ID]}
    labelled = {**document, "metadata": {**metadata, "labels": labels}}
    ref = AggregateRef("customspec", f"{PROFILES}={id_}")
    return [Draft(ref, CustomObjectObserved(object=labelled), view.state.last_seq(ref))]
