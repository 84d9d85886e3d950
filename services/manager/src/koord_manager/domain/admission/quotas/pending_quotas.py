"""Remember accepted quotas until they are observed, so that the next decision includes them.

The API server may still refuse an accepted request. So a quota is remembered for a short time only, and never for a dry
run.

Source:
    manager spec, 13.2 (last paragraph)
"""

from typing import Final

from koordcore.values.resources import is_equal

from koord_manager.domain.admission.context.quota import Quota, QuotaTree

FORGOTTEN_AFTER_SECONDS: Final = 10.0


class PendingQuotas:
    """Quotas that a webhook accepted and that are not observed yet, by name. Times: seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._accepted: dict[str, tuple[float, Quota | None]] = {}

    def accept(self, name: str, quota: Quota | None, now: float) -> None:
        """Remember an accepted quota, or None for an accepted deletion."""
        self._accepted[name] = (now + FORGOTTEN_AFTER_SECONDS, quota)

    def current(self, observed: QuotaTree, now: float) -> dict[str, Quota | None]:
        """Return name -> quota that was accepted but is not observed yet; None stands for an accepted deletion."""
        if not self._accepted:
            return {}
        for name, (until, quota) in list(self._accepted.items()):
            if now >= until or _is_observed(quota, observed.get(name)):
                del self._accepted[name]
        return {name: quota for name, (_, quota) in self._accepted.items()}


def _is_observed(accepted: Quota | None, seen: Quota | None) -> bool:
    if accepted is None or seen is None:
        return accepted is seen
    return (
        accepted.labels == seen.labels
        and accepted.annotations == seen.annotations
        and is_equal(accepted.min, seen.min)
        and is_equal(accepted.max, seen.max)
    )
