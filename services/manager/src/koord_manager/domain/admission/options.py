"""The feature gates and flags that admission reads.

Source:
    manager spec, 2.2, 2.4
"""

from collections.abc import Callable, Iterable, Mapping
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
WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "DisablePVCReservation": "the manager makes no Reservations of pods",
    "PriorityTransformer": "the API server has set the priority of a pod before the manager reads it",
    "PreemptionPolicyTransformer": "nothing in the manager depends on the preemption policy of a pod",
}
"""Gate that is accepted without effect -> why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingPolicy:
    """Rules about the users who may bind pods (flags --binding-admission-*)."""

    # A user may bind if its name contains one of these texts. If empty, every user may bind.
    user_names: tuple[str, ...] = ()
    dry_run: bool = False  # Whether a binding that would be denied is only counted
    namespaces: tuple[str, ...] = ()  # Namespaces in which the rules apply; `*` means all
    exclude_namespaces: tuple[str, ...] = ("kube-system",)  # Namespaces in which every user may bind
    # Label keys of pods that every user may bind.
    bypass_labels: tuple[str, ...] = ("koordinator.sh/binding-admission-bypass",)
    bypass_annotations: tuple[str, ...] = ()  # Annotation keys of pods that every user may bind


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    # Gate -> whether it is on. A gate that is missing has its default.
    gates: Mapping[str, bool] = field(default_factory=dict[str, bool])
    check_strategy_names: bool = False  # Whether names of node strategies are checked (--node-strategy-name-need-check)
    startup_boost: bool = False  # Whether policies of Recommendations raise the CPU of new pods (--startup-boost)
    recommended_usage: bool = False  # Whether new pods get the annotation `recommended-usage` (--recommended-usage)
    binding: BindingPolicy = field(default_factory=BindingPolicy)  # Rules about the users who may bind pods

    def enabled(self, gate: str) -> bool:
        """Return whether a feature gate is on.

        Raises:
            KeyError: The gate does not exist.
        """
        default = GATE_DEFAULTS[gate]
        return self.gates.get(gate, default)


_CHECKS_NAMES: Final = "node-strategy-name-need-check"
_RECOMMENDED_USAGE: Final = "recommended-usage"
_STARTUP_BOOST: Final = "startup-boost"


def changed_settings(options: Options) -> list[str]:
    """Return the gates and flags that differ from their defaults, as `name=true` or `name=false` in order of name.

    A decision of admission records them, so that it can be repeated (`options_from`).
    """
    gates = {gate: is_on for gate, is_on in options.gates.items() if is_on != GATE_DEFAULTS.get(gate, is_on)}
    flags = {
        _CHECKS_NAMES: options.check_strategy_names,
        _RECOMMENDED_USAGE: options.recommended_usage,
        _STARTUP_BOOST: options.startup_boost,
    }
    settings_by_name = {**gates, **{flag: is_on for flag, is_on in flags.items() if is_on}}
    return [f"{name}={str(is_on).lower()}" for name, is_on in sorted(settings_by_name.items())]


def options_from(settings: Iterable[str]) -> Options:
    """Return the options for gates and flags as `changed_settings` returned them; unknown names are ignored."""
    settings_by_name = {name: text == "true" for name, _, text in (setting.partition("=") for setting in settings)}
    return Options(
        gates={name: is_on for name, is_on in settings_by_name.items() if name in GATE_DEFAULTS},
        check_strategy_names=settings_by_name.get(_CHECKS_NAMES, False),
        recommended_usage=settings_by_name.get(_RECOMMENDED_USAGE, False),
        startup_boost=settings_by_name.get(_STARTUP_BOOST, False),
    )


Draw = Callable[[str], float]
"""Name of a profile -> a number in [0, 100), for profiles with a probability."""


def draws_of(seed: str) -> Draw:
    """Return a function that maps the name of a profile to a number from 0 to below 100.

    The number is a hash of the seed and the name, so the same request always gets the same number.

    Args:
        seed: Uid of the request.
    """

    def draw(profile: str) -> float:
        digest = blake2b(f"{seed}/{profile}".encode(), digest_size=6).digest()
        return int.from_bytes(digest, "big") * 100 / (1 << 48)

    return draw
