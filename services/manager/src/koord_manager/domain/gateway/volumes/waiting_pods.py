"""Placed pods that wait for a claim to be bound. A change of the claim retries their bindings at once."""

from collections.abc import Iterable

from koordcore.state.aggregates import PodSpecState, PodState
from koordcore.values.allocation import ClaimBinding

from koord_manager.domain.cluster.view import ManagerView


class PodsByClaim:
    """Claim -> uids of the placed pods that wait for it.

    Args:
        view: The fold, from which the pods that wait now are taken; None for none.
    """

    def __init__(self, view: ManagerView | None = None) -> None:
        self._waiting: dict[tuple[str, str], dict[str, None]] = {}
        self._claims: dict[str, tuple[ClaimBinding, ...]] = {}
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
            self.ended(uid)
            self._claims[uid] = claims
            for each in claims:
                self._waiting.setdefault((each.namespace, each.claim), {})[uid] = None

    def ended(self, uid: str) -> None:
        """Forget a pod, because its binding has an outcome or its placement ended. No-op if it does not wait."""
        for each in self._claims.pop(uid, ()):
            waiting = self._waiting[each.namespace, each.claim]
            waiting.pop(uid, None)
            if not waiting:
                del self._waiting[each.namespace, each.claim]

    def of(self, namespace: str, claim: str) -> Iterable[str]:
        """Return the uids of the pods that wait for a claim."""
        return self._waiting.get((namespace, claim), ())
