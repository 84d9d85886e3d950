"""Which pending writes a change retries at once.

A change of a quota leads to the ElasticQuotaProfiles that rendered it, and a change of a claim to the placed pods that
wait for it.
"""

from collections.abc import Iterable

from koordcore.events.envelope import AggregateRef
from koordcore.state.aggregates import PodSpecState, PodState, QuotaProfileState
from koordcore.state.index import IdsByKey
from koordcore.values.allocation import ClaimBinding

from koord_manager.domain.admission.context.facts import QUOTA_PROFILES
from koord_manager.domain.cluster.view import ManagerView

Quota = tuple[str, str]
"""Namespace and name of an ElasticQuota."""


class ProfilesByQuota:
    """The aggregates of the existing profiles, by the root quota that each one rendered last."""

    def __init__(self, view: ManagerView | None = None) -> None:
        self._ids = IdsByKey[Quota]()
        if view is not None:
            rendered = view.state.of_kind(QuotaProfileState)  # also of profiles that are deleted
            for id_, _ in view.customs(QUOTA_PROFILES):
                if (profile := rendered.get(id_)) is not None:
                    self._ids.put(id_, (profile.quota_namespace, profile.quota_name))

    def of(self, namespace: str, name: str) -> Iterable[AggregateRef]:
        return tuple(AggregateRef("quotaprofile", id_) for id_ in self._ids.of((namespace, name)))

    def rendered(self, profile: AggregateRef, namespace: str, name: str) -> None:
        """Record the root quota that a profile rendered. It replaces the one that the profile rendered before.

        Args:
            profile: Aggregate `quotaprofile.<namespace>=<name>` of the profile.
        """
        self._ids.put(profile.id, (namespace, name))

    def deleted(self, id_: str) -> None:
        """Forget a deleted profile. `id_`: id of its custom resource, `elasticquotaprofiles=<namespace>=<name>`."""
        self._ids.put(id_.partition("=")[2])


class PodsByClaim:
    """Claim -> uids of the placed pods that wait for it."""

    def __init__(self, view: ManagerView | None = None) -> None:
        self._uids = IdsByKey[tuple[str, str]]()
        if view is not None:
            specs = view.state.of_kind(PodSpecState)
            for uid, placed in view.state.of_kind(PodState).items():
                spec = specs.get(uid)
                is_open = spec is not None and (spec.binding is None or spec.binding.placement != placed.seq)
                if placed.node and is_open:
                    self.placed(uid, placed.allocation.volume_claims)

    def placed(self, uid: str, claims: tuple[ClaimBinding, ...]) -> None:
        """Record that a pod was placed with these unbound claims; no-op if there are none."""
        if claims:
            self._uids.put(uid, *((each.namespace, each.claim) for each in claims))

    def ended(self, uid: str) -> None:
        """Forget a pod, because its binding has an outcome or its placement ended. No-op if it does not wait."""
        self._uids.put(uid)

    def of(self, namespace: str, claim: str) -> Iterable[str]:
        return self._uids.of((namespace, claim))
