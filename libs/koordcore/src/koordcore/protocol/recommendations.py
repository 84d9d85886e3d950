"""Recommendation objects, which ask for recommended requests of pods: selected pods, and how results are applied.

Source: manager spec, 15.1; protocol spec, 9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from koordcore.protocol import lenient_json
from koordcore.protocol.objects import KubeStruct, LabelSelector, ObjectMeta, OwnerReference, Pod, Quantities
from koordcore.protocol.selectors import Selector, compile_selector
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import parse_milli
from koordcore.values.resources import parse_amounts

PLURAL: Final = "recommendations"
UPDATE_MODE: Final = "analysis.koordinator.sh/update-mode"
RESOURCE_POLICY: Final = "analysis.koordinator.sh/resource-policy"
STARTUP_BOOST: Final = "analysis.koordinator.sh/startup-boost"
BOUNDS: Final = "analysis.koordinator.sh/bounds"
EVERY_CONTAINER: Final = "*"

_TEMPLATE_HASH: Final = "pod-template-hash"


class UpdateMode(StrEnum):
    """Whether and how a recommendation is applied to pods."""

    OFF = "Off"  # Never; the status of the Recommendation only shows it
    INITIAL = "Initial"  # To new pods, at admission
    RECREATE = "Recreate"  # To new pods, and running pods are evicted so that new ones replace them
    AUTO = "Auto"  # Equal to RECREATE
    # To new pods; running pods are resized in place, and evicted if that is impossible or takes too long
    IN_PLACE_OR_RECREATE = "InPlaceOrRecreate"


class ControlledValues(StrEnum):
    """The values of a container that a recommendation sets: only its requests, or requests and limits."""

    REQUESTS_AND_LIMITS = "RequestsAndLimits"
    REQUESTS_ONLY = "RequestsOnly"


class WorkloadReference(KubeStruct):
    """Kind, name and API version of the workload that a Recommendation is about (object `spec.target.workload`)."""

    kind: str = ""
    name: str = ""
    api_version: str = ""


class RecommendationTarget(KubeStruct):
    """Pods that a Recommendation selects, as written (object `spec.target`). `type` is "workload" or "podSelector"; the
    field with this name must be set.
    """

    type: str = ""
    workload: WorkloadReference | None = None
    pod_selector: LabelSelector | None = None


class RecommendationSpec(KubeStruct):
    """Object `spec` of a Recommendation, reduced to the pods that it selects."""

    target: RecommendationTarget = msgspec.field(default_factory=RecommendationTarget)


class Recommendation(KubeStruct):
    """A Recommendation object (analysis.koordinator.sh/v1alpha1), which asks for recommended requests."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: RecommendationSpec = msgspec.field(default_factory=RecommendationSpec)


class BoostType(StrEnum):
    """How a start-up boost is written: as a factor, or as an amount that is added."""

    FACTOR = "Factor"
    QUANTITY = "Quantity"


class CpuBoost(KubeStruct):
    """More CPU for a container until its pod has been ready for `duration_seconds`."""

    type: str = BoostType.FACTOR
    factor: int = 1  # Times the request; with type Factor
    quantity: str = "0"  # What is added to the request; with type Quantity
    duration_seconds: int = 0

    def of(self, milli: int) -> int:
        """Return the raised request for one of so many milli-cores.

        Raises:
            InvalidInput: The quantity is invalid.
        """
        return milli * self.factor if self.type == BoostType.FACTOR else milli + parse_milli(self.quantity)


class StartupBoost(KubeStruct):
    cpu: CpuBoost | None = None


class ContainerPolicy(KubeStruct):
    """Limits of a Recommendation for one container, from its annotation `analysis.koordinator.sh/resource-policy`."""

    mode: str = "Auto"  # "Auto", or "Off" if the recommendation must not change the container
    min_allowed: Quantities = {}  # Smallest amounts that may be recommended
    max_allowed: Quantities = {}  # Largest amounts that may be recommended; 0 for no limit
    controlled_values: str = ControlledValues.REQUESTS_AND_LIMITS  # "RequestsAndLimits" or "RequestsOnly"
    startup_boost: StartupBoost | None = None  # More CPU while the pod starts; None for none

    @property
    def is_off(self) -> bool:
        """Whether the recommendation must not change this container."""
        return self.mode == "Off"


class Target(NamedTuple):
    """The pods that a Recommendation selects, after validation."""

    namespace: str  # Namespace of the Recommendation and of the pods
    key: str  # Text that identifies the target in its namespace: `Deployment/web`, `pods app=web`
    kind: str = ""  # Kind of the workload; "" with a selector
    name: str = ""  # Name of the workload; "" with a selector
    selector: Selector | None = None  # Selector of the pods. None: the pods of the workload with that kind and name.

    def matches(self, pod: Pod, owners: Iterable[OwnerReference]) -> bool:
        """Return whether a Recommendation selects the pod. `owners`: Controllers of the pod up to its workload
        (ReplicaSet, Deployment ...), nearest first.
        """
        if pod.metadata.namespace != self.namespace:
            return False
        if self.selector is not None:
            return self.selector.matches(pod.metadata.labels)
        return any(
            (owner.kind == self.kind and owner.name == self.name) or self._is_replica_set(owner, pod)
            for owner in owners
        )

    def _is_replica_set(self, owner: OwnerReference, pod: Pod) -> bool:
        """Return whether the owner is a ReplicaSet of the target Deployment. It is recognised by its name if the object
        itself is not known.
        """
        if self.kind != "Deployment" or owner.kind != "ReplicaSet":
            return False
        template = pod.metadata.labels.get(_TEMPLATE_HASH)
        return bool(template) and owner.name == f"{self.name}-{template}"


def target_of(recommendation: Recommendation) -> Target:
    """Return the target of a Recommendation.

    Raises:
        InvalidInput: The target is missing or incomplete, or its selector is invalid or without any requirement. The
            error has the field.
    """
    namespace, written = recommendation.metadata.namespace, recommendation.spec.target
    match written.type:
        case "workload":
            workload = written.workload
            if workload is None:
                raise InvalidInput("set when type is workload", None, "spec.target.workload")
            for field, value in (("kind", workload.kind), ("name", workload.name)):
                if not value:
                    raise InvalidInput("not empty", value, f"spec.target.workload.{field}")
            return Target(namespace, f"{workload.kind}/{workload.name}", workload.kind, workload.name)
        case "podSelector":
            if written.pod_selector is None:
                raise InvalidInput("set when type is podSelector", None, "spec.target.podSelector")
            try:
                selector = compile_selector(written.pod_selector)
            except InvalidInput as error:
                raise error.at("spec.target.podSelector") from error
            if not selector.requirements:
                raise InvalidInput("a selector that says something", {}, "spec.target.podSelector")
            return Target(namespace, f"pods {_written(written.pod_selector)}", selector=selector)
        case unknown:
            raise InvalidInput("workload or podSelector", unknown, "spec.target.type")


def update_mode(annotations: Mapping[str, str]) -> UpdateMode:
    """Return the mode in which a Recommendation is applied to pods; Off without the annotation. `annotations`:
    Annotations of the Recommendation. `analysis.koordinator.sh/update-mode` counts.

    Raises:
        InvalidInput: The text is not a known mode.
    """
    text = annotations.get(UPDATE_MODE, "")
    if not text:
        return UpdateMode.OFF
    for mode in UpdateMode:
        if text == mode:
            return mode
    raise InvalidInput(f"one of {', '.join(UpdateMode)}", text, f"metadata.annotations[{UPDATE_MODE}]")


def resource_policies(annotations: Mapping[str, str]) -> dict[str, ContainerPolicy]:
    """Return container name -> its policy, from annotations of a Recommendation. The name `*` is for all others.
    `analysis.koordinator.sh/resource-policy` counts; without it, the result is empty.

    Raises:
        InvalidInput: The JSON, a quantity or a value is invalid.
    """
    text = annotations.get(RESOURCE_POLICY)
    if not text:
        return {}
    path = f"metadata.annotations[{RESOURCE_POLICY}]"
    try:
        policies = lenient_json.decode(text, dict[str, ContainerPolicy])
        for name, policy in policies.items():
            if policy.mode not in ("Auto", "Off"):
                raise InvalidInput("Auto or Off", policy.mode, f"{name}.mode")
            if policy.controlled_values not in tuple(ControlledValues):
                rule = f"one of {', '.join(ControlledValues)}"
                raise InvalidInput(rule, policy.controlled_values, f"{name}.controlledValues")
            _check_boost(policy.startup_boost, name)
            for amounts in (policy.min_allowed, policy.max_allowed):
                parse_amounts(amounts)
    except InvalidInput as error:
        raise error.at(path) from error
    return policies


def _check_boost(boost: StartupBoost | None, name: str) -> None:
    cpu, path = boost.cpu if boost else None, f"{name}.startupBoost.cpu"
    if cpu is None:
        return
    if cpu.type not in tuple(BoostType):
        raise InvalidInput(f"one of {', '.join(BoostType)}", cpu.type, f"{path}.type")
    if cpu.type == BoostType.FACTOR and cpu.factor < 1:
        raise InvalidInput("at least 1", cpu.factor, f"{path}.factor")
    if parse_milli(cpu.quantity) < 0:
        raise InvalidInput("not negative", cpu.quantity, f"{path}.quantity")
    if cpu.duration_seconds < 0:
        raise InvalidInput("not negative", cpu.duration_seconds, f"{path}.durationSeconds")


def policy_of(policies: Mapping[str, ContainerPolicy], container: str) -> ContainerPolicy:
    """Return the policy of a container: its own, else that of `*`, else one without limits."""
    return policies.get(container) or policies.get(EVERY_CONTAINER) or ContainerPolicy()


def _written(selector: LabelSelector) -> str:
    labels = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    expressions = [
        f"{expression.key} {expression.operator}" + (f" ({','.join(expression.values)})" if expression.values else "")
        for expression in selector.match_expressions
    ]
    return ",".join([*labels, *expressions])


_PARTS: Final = 3


def workload_of(text: str, field: str) -> Target:
    """Return the workload that a text names. `text`: kind, namespace and name, for example "Deployment/web/shop". The
    kind is written as in manifests. `field`: name of the parameter, for the error.

    Raises:
        InvalidInput: The text does not have these three parts.
    """
    parts = text.split("/")
    if len(parts) != _PARTS or not all(parts):
        raise InvalidInput("KIND/NAMESPACE/NAME, such as Deployment/web/shop", text, field)
    kind, namespace, name = parts
    return Target(namespace=namespace, key=text, kind=kind, name=name)


def controls(workload: Target, pod: Pod) -> bool:
    """Return whether a workload controls a pod, directly or as the Deployment of its ReplicaSet."""
    return workload.matches(pod, (owner for owner in pod.metadata.owner_references if owner.controller))
