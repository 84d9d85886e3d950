"""What the operator chose for admission: gates and flags, as values.

source    manager spec, 2.2, 2.4
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

GATE_DEFAULTS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(
        (
            "PodMutatingWebhook",
            "PodValidatingWebhook",
            "ElasticMutatingWebhook",
            "ElasticValidatingWebhook",
            "WebhookFramework",
        ),
        True,
    ),
    **dict.fromkeys(
        (
            "NodeMutatingWebhook",
            "NodeValidatingWebhook",
            "ConfigMapValidatingWebhook",
            "ReservationMutatingWebhook",
            "BindingAdmissionWebhook",
            "ColocationProfileController",
            "ColocationProfileSkipMutatingResources",
            "ColocationProfileSkipValidatingPriority",
            "MultiQuotaTree",
            "ElasticQuotaIgnorePodOverhead",
            "ElasticQuotaGuaranteeUsage",
            "ElasticQuotaEnableUpdateResourceKey",
            "ElasticQuotaEvaluationTransformPod",
            "DisableDefaultQuota",
            "SupportParentQuotaSubmitPod",
            "EnableQuotaAdmission",
            "EnableQuotaAdmissionOnUpdate",
            "EnableSyncGPUSharedResource",
            "ValidatePodDeviceResource",
            "EnablePodEnhancedValidator",
            "DisableExtendedResourceSpec",
            "DisableDeviceResourceSpec",
            "DisablePVCReservation",
            "PriorityTransformer",
            "PreemptionPolicyTransformer",
            "ReplaceResourcesTransformer",
        ),
        False,
    ),
}
"""Every gate of the manager and its default (manager spec, 2.4; protocol spec, 11.5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingPolicy:
    """Who may bind pods (--binding-admission-*); without user names everybody may."""

    user_names: tuple[str, ...] = ()
    dry_run: bool = False
    namespaces: tuple[str, ...] = ()
    exclude_namespaces: tuple[str, ...] = ("kube-system",)
    bypass_labels: tuple[str, ...] = ("koordinator.sh/binding-admission-bypass",)
    bypass_annotations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Gates and flags of admission.

    gates                  those that differ from their default, or all
    check_strategy_names   --node-strategy-name-need-check
    """

    gates: Mapping[str, bool] = field(default_factory=dict[str, bool])
    check_strategy_names: bool = False
    binding: BindingPolicy = field(default_factory=BindingPolicy)

    def enabled(self, gate: str) -> bool:
        """Whether a gate is on. KeyError for a gate that does not exist: a bug."""
        default = GATE_DEFAULTS[gate]
        return self.gates.get(gate, default)


Draw = Callable[[str], float]
"""Name of a profile -> a number in [0, 100), for profiles with a probability."""


def draws_of(seed: str) -> Draw:
    """Draws that follow from a request's uid and the profile's name: the same request is always answered alike."""

    def draw(profile: str) -> float:
        digest = blake2b(f"{seed}/{profile}".encode(), digest_size=6).digest()
        return int.from_bytes(digest, "big") * 100 / (1 << 48)

    return draw
