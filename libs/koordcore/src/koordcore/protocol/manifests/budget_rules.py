"""Validation rules of the Kubernetes API for PodDisruptionBudgets.

Source: reality spec, 1.7; Kubernetes, ValidatePodDisruptionBudgetSpec.
"""

import re
from typing import Any, Final

import msgspec

from koordcore.protocol.manifests.names import Violations
from koordcore.protocol.objects import object_from_json
from koordcore.protocol.scheduling_objects import PodDisruptionBudget
from koordcore.protocol.selectors import compile_selector
from koordcore.values.invalid import InvalidInput

_PERCENT: Final = re.compile(r"[0-9]{1,9}%")
_POLICIES: Final = ("IfHealthyBudget", "AlwaysAllow")


def check_budget(document: dict[str, Any]) -> Violations:
    """Yield every violation in a PodDisruptionBudget that passed its schema."""
    try:
        spec = object_from_json(document, PodDisruptionBudget).spec
    except msgspec.ValidationError as error:
        yield InvalidInput(f"a PodDisruptionBudget ({error})", document.get("spec"), "spec")
        return
    if spec.min_available is not None and spec.max_unavailable is not None:
        yield InvalidInput("absent, because minAvailable is set", spec.max_unavailable, "spec.maxUnavailable")
    for field, bound in (("minAvailable", spec.min_available), ("maxUnavailable", spec.max_unavailable)):
        if bound is not None and not _is_bound(bound):
            yield InvalidInput("a number of pods (0 or more), or a percentage (0%..100%)", bound, f"spec.{field}")
    policy = document["spec"].get("unhealthyPodEvictionPolicy")
    if policy not in (None, *_POLICIES):
        yield InvalidInput(" or ".join(_POLICIES), policy, "spec.unhealthyPodEvictionPolicy")
    if spec.selector is not None:
        try:
            compile_selector(spec.selector)
        except InvalidInput as error:
            yield error.at("spec.selector")


def _is_bound(bound: int | str) -> bool:
    if isinstance(bound, str):
        return _PERCENT.fullmatch(bound) is not None and int(bound[:-1]) <= 100
    return bound >= 0
