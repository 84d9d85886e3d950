"""Apply managed colocation profiles to pods that were created before the profile and have no node yet.

`managed_profiles` and `waiting_pods` are combined. `ProfileUpdates` limits how often and how fast pods are changed.
Scheduler name, priority class and translation are not applied, because they are allowed for new pods only.

Source:
    manager spec, 8.5
"""

from collections.abc import Iterator
from dataclasses import replace

from koordcore.protocol.objects import Pod
from koordcore.state.aggregates import PodSpecState, PodState

from koord_manager.domain.admission.colocation_profile import apply_profile, is_drawn, is_matching
from koord_manager.domain.admission.context.facts import Facts
from koord_manager.domain.admission.context.profiles import ColocationProfile
from koord_manager.domain.admission.json_object import child, copied
from koord_manager.domain.admission.options import draws_of
from koord_manager.domain.admission.request import JsonObject
from koord_manager.domain.cluster.view import ManagerView


class ProfileUpdates:
    """Remembers which profile was applied to which pod and when, and limits the rate of further updates.

    All times are seconds of a monotonic clock.

    Args:
        force_update: Seconds after which a profile is applied to the same pod again.
        forget: Seconds for which an update is remembered.
        qps: Maximum number of updates per second, `burst` at once.
    """

    def __init__(
        self, *, force_update: float = 300.0, forget: float = 600.0, qps: float = 10.0, burst: int = 100
    ) -> None:
        self._force_update, self._forget, self._qps, self._burst = force_update, forget, qps, float(burst)
        self._done: dict[tuple[str, str], float] = {}
        self._room = self._burst
        self._filled_at: float | None = None

    def begin(self, now: float) -> None:
        """Start a run: forget updates that are older than `forget` seconds."""
        self._done = {key: at for key, at in self._done.items() if now - at < self._forget}

    def is_due(self, profile: ColocationProfile, uid: str, now: float) -> bool:
        """Return whether this version of a profile was not applied to a pod within the last `force_update` seconds."""
        at = self._done.get((profile.version, uid))
        return at is None or now - at >= self._force_update

    def has_room(self, now: float) -> bool:
        """Return whether the rate limit allows another update now."""
        passed = now - self._filled_at if self._filled_at is not None else 0.0
        self._room = min(self._burst, self._room + passed * self._qps)
        self._filled_at = now
        return self._room >= 1

    def take(self, profile: ColocationProfile, uid: str, now: float) -> bool:
        """Return whether the rate limit allows to apply a profile to a pod now. If True, record the update as done."""
        if not self.has_room(now):
            return False
        self._room -= 1
        self._done[profile.version, uid] = now
        return True

    def give_back(self, profile: ColocationProfile, uid: str) -> None:
        """Undo `take`, because the log did not store the update."""
        if self._done.pop((profile.version, uid), None) is not None:
            self._room += 1

    def failed(self, profile: ColocationProfile, uid: str) -> None:
        """Record that an update failed, so that it is due again at once. The rate limit still counts it."""
        self._done.pop((profile.version, uid), None)


def managed_profiles(facts: Facts, *, by_default: bool) -> list[ColocationProfile]:
    """Return the profiles that the controller applies to existing pods, in order of name.

    They have the label of managed profiles, or `by_default` is set. Profiles that are being deleted, and profiles
    without a pod selector, are left out.
    """
    return [
        profile
        for profile in facts.profiles().all
        if (profile.managed or by_default) and not profile.terminating and profile.has_pod_selector
    ]


def waiting_pods(view: ManagerView) -> Iterator[tuple[str, Pod]]:
    """Yield uid and object of every pending pod that is neither placed nor bound to a node."""
    placements = view.state.of_kind(PodState)
    for uid, spec in list(view.state.of_kind(PodSpecState).items()):
        pod = spec.object
        placed = placements.get(uid)
        if not pod.spec.node_name and pod.status.phase in ("", "Pending") and not (placed and placed.node):
            yield uid, pod


def is_wanted(profile: ColocationProfile, uid: str, pod: Pod, facts: Facts) -> bool:
    """Return whether a profile has to be applied to a pod: its selectors match, and its probability includes the pod.

    Raises:
        InvalidInput: The probability is not a valid percentage.
    """
    meta = pod.metadata
    return is_matching(profile, meta.namespace, meta.labels, facts) and is_drawn(profile, draws_of(uid))


def reconciled_pod(document: JsonObject, profile: ColocationProfile, facts: Facts) -> JsonObject | None:
    """Return the pod after a profile has changed it, or None if the profile changes nothing.

    Scheduler name and priority class stay as they are, because the API server allows them to be set on new pods only.

    Raises:
        InvalidInput: The patch of the profile cannot be applied.
    """
    mutated = copied(document)
    kept = replace(profile, scheduler_name="", priority_class_name="")
    mutated = apply_profile(mutated, kept, pod_spec=child(mutated, "spec"), classes=facts)
    return None if mutated == document else mutated
