"""The ElasticQuotaProfiles of each root quota, so that a change of a quota leads to the profiles that rendered it."""

from collections.abc import Iterable

from koordcore.events.envelope import AggregateRef
from koordcore.state.aggregates import QuotaProfileState

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.quota_profiles.controller import PROFILES

Quota = tuple[str, str]
"""Namespace and name of an ElasticQuota."""


class ProfilesByQuota:
    """The aggregates of the existing profiles, by the root quota that each one rendered last.

    Args:
        view: The folded cluster to begin with, or None for no profiles.
    """

    def __init__(self, view: ManagerView | None = None) -> None:
        self._profiles: dict[Quota, dict[AggregateRef, None]] = {}
        self._quota_of: dict[AggregateRef, Quota] = {}
        if view is not None:
            rendered = view.state.of_kind(QuotaProfileState)  # also of profiles that are deleted
            for id_, _ in view.customs(PROFILES):
                if (profile := rendered.get(id_)) is not None:
                    self.rendered(AggregateRef("quotaprofile", id_), profile.quota_namespace, profile.quota_name)

    def of(self, namespace: str, name: str) -> Iterable[AggregateRef]:
        """Return the profiles whose root quota is the quota with this namespace and name."""
        return tuple(self._profiles.get((namespace, name), ()))

    def rendered(self, profile: AggregateRef, namespace: str, name: str) -> None:
        """Record the root quota that a profile rendered. It replaces the one that the profile rendered before.

        Args:
            profile: Aggregate `quotaprofile.<namespace>=<name>` of the profile.
            namespace: Namespace of the root quota.
            name: Name of the root quota.
        """
        if self._quota_of.get(profile) != (namespace, name):
            self._forget(profile)
            self._quota_of[profile] = namespace, name
            self._profiles.setdefault((namespace, name), {})[profile] = None

    def deleted(self, id_: str) -> None:
        """Forget a profile that was deleted.

        Args:
            id_: Id of its custom resource, `elasticquotaprofiles=<namespace>=<name>`.
        """
        self._forget(AggregateRef("quotaprofile", id_.partition("=")[2]))

    def _forget(self, profile: AggregateRef) -> None:
        quota = self._quota_of.pop(profile, None)
        if quota is not None:
            profiles = self._profiles[quota]
            del profiles[profile]
            if not profiles:
                del self._profiles[quota]
