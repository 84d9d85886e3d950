"""The Reservation object (resources of a node that only its owners may use), and annotations about Reservations.

A running pod in operating mode Reservation lends its resources to another pod, once.

Source: protocol spec, 9.4; scheduler-fine-grained spec, 3.1, 3.2, 3.5, 3.12.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from koordcore.protocol import keys, lenient_json
from koordcore.protocol import objects as kube
from koordcore.protocol.objects import KubeStruct, Pod, PodStatus, PodTemplate, Quantities
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.reservation_status import AVAILABLE, FINAL_PHASES, PENDING, ReservationOwner, ReservationStatus
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import format_resources, parse_amounts, quantity_of

PLURAL: Final = "reservations"
NEVER_A_VICTIM: Final = 2_147_483_647  # Priority of a reserve pod whose template and label state none
_DEFAULT_SCHEDULER: Final = "default-scheduler"
_FAKE_CONTAINER: Final = "__internal_fake_container__"
_OWNER_KEYS: Final = ("namespace", "name", "uid")

T = TypeVar("T", bound=KubeStruct)


class OwnerObject(KubeStruct):
    """Condition on a pod that may use a Reservation: part `object` of `spec.owners[]`.
    Empty fields match everything.
    """

    api_version: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""


class OwnerController(KubeStruct):
    """Condition on the controller of a pod that may use a Reservation: part `controller` of `spec.owners[]`. Empty
    fields match everything.
    """

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    namespace: str = ""
    controller: bool | None = None


class ReservationOwnerRule(KubeStruct):
    """Condition on pods that may use a Reservation: by pod, by controller, by labels (object `spec.owners[]`). All
    parts that are given must match.
    """

    object: OwnerObject | None = None
    controller: OwnerController | None = None
    label_selector: kube.LabelSelector | None = None


class PreAllocationPolicy(KubeStruct):
    """Rules by which a Reservation takes over resources of running pods: object `spec.preAllocationPolicy`."""

    # Which pods may be taken: "Default" (those that the Reservation's owners select) or "Cluster" (those with a label).
    mode: str = "Default"
    enable_multiple: bool = False  # Whether one Reservation may take over several pods


class ReservationSpec(KubeStruct):
    """Object `spec` of a Reservation: pod template with the reserved resources, owners, lifetime and policies."""

    template: kube.PodTemplate | None = None
    owners: list[ReservationOwnerRule] = []  # Rules for pods that may use the Reservation; a pod needs to match one
    # Duration after which it expires; `expires`: RFC 3339 time at which it expires. None if not set.
    ttl: str | None = None
    expires: str | None = None
    allocate_once: bool = True  # Whether it ends as soon as one pod uses it
    # `Restricted`: owners take certain resources only from it. `Aligned` or "": also from the node.
    allocate_policy: str = ""
    unschedulable: bool = False  # Whether no further pod may use it
    taints: list[kube.Taint] = []
    pre_allocation: bool = False  # Whether it may take over the resources of running pods, which become its owners
    pre_allocation_policy: PreAllocationPolicy = msgspec.field(default_factory=PreAllocationPolicy)


class ReservationObjectStatus(KubeStruct):
    """Object `status` of a Reservation, reduced to the fields that are read from objects of another scheduler."""

    phase: str = ""
    node_name: str = ""
    allocatable: Quantities = {}
    allocated: Quantities = {}
    current_owners: list[dict[str, str]] = []


class Reservation(KubeStruct):
    """A Reservation object (scheduling.koordinator.sh/v1alpha1): resources of a node that only its owners may use."""

    metadata: kube.ObjectMeta = msgspec.field(default_factory=kube.ObjectMeta)
    spec: ReservationSpec = msgspec.field(default_factory=ReservationSpec)
    status: ReservationObjectStatus = msgspec.field(default_factory=ReservationObjectStatus)


def reservation_from_json(raw: object) -> Reservation:
    """Convert a decoded JSON object to a Reservation. Unknown fields are dropped, and nulls count as absent.

    Raises:
        codec.DecodeError: A field has a wrong type. The error has its path.
    """
    try:
        # objects from an API server hold no nulls, and looking for them takes longer than the conversion
        return codec.convert(raw, Reservation)
    except codec.DecodeError:
        return kube.object_from_json(raw, Reservation)


def changes_without_effect(before: Reservation, after: Reservation) -> tuple[str, ...]:
    """Return a sentence for each change of a Reservation that has no effect once it has a node, because what it holds
    is decided when it is placed. Empty if all changes have effect.
    """
    key = keys.RESERVATION_RESIZE_ALLOCATABLE
    resized = before.metadata.annotations.get(key) != after.metadata.annotations.get(key)
    paths = (["spec.template"] if before.spec.template != after.spec.template else []) + (
        [f"metadata.annotations[{key}]"] if resized else []
    )
    return tuple(
        f"{path}: the change has no effect, because the Reservation has a node; delete it and create another"
        for path in paths
    )


class ReservationAffinity(msgspec.Struct, frozen=True, kw_only=True):
    """Annotation `reservation-affinity` of a pod: the Reservations that the pod has to use."""

    name: str = ""  # Name of the only Reservation; empty: any
    selector: dict[str, str] = {}  # Labels that the Reservation must have
    terms: tuple[kube.NodeSelectorTerm, ...] | None = None  # Terms of which one must match; None: no such restriction
    tolerations: tuple[kube.Toleration, ...] = ()  # Tolerations for taints of Reservations


class _Required(KubeStruct):
    reservation_selector_terms: list[kube.NodeSelectorTerm] = []


class _Affinity(KubeStruct):
    name: str = ""
    reservation_selector: dict[str, str] = {}
    required: _Required | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    tolerations: list[kube.Toleration] = []


class _ExactMatch(KubeStruct):
    resource_names: list[str] = []


class _RestrictedOptions(KubeStruct):
    resources: list[str] = []


class _Amounts(KubeStruct):
    resources: Quantities = {}


def parse_reservation_affinity(annotations: Mapping[str, str]) -> ReservationAffinity | None:
    """Return the annotation `scheduling.koordinator.sh/reservation-affinity` of a pod; None if it is absent.

    Raises:
        InvalidInput: The annotation is not valid JSON of its shape.
    """
    text = annotations.get(keys.RESERVATION_AFFINITY)
    if not text:
        return None
    written = _decoded(text, _Affinity, keys.RESERVATION_AFFINITY)
    terms = None if written.required is None else tuple(written.required.reservation_selector_terms)
    return ReservationAffinity(
        name=written.name,
        selector=written.reservation_selector,
        terms=terms,
        tolerations=tuple(written.tolerations),
    )


def parse_exact_match(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return the resources of which a pod must request exactly the amount that its Reservation holds. They are in the
    annotation `scheduling.koordinator.sh/exact-match-reservation`; empty if it is absent.

    Raises:
        InvalidInput: The annotation is not valid JSON of its shape.
    """
    text = annotations.get(keys.EXACT_MATCH_RESERVATION)
    return tuple(_decoded(text, _ExactMatch, keys.EXACT_MATCH_RESERVATION).resource_names) if text else ()


def restricted_options(annotations: Mapping[str, str]) -> frozenset[str]:
    """Return the resources to which the policy `Restricted` of a Reservation is limited; empty: all its resources.
    `scheduling.koordinator.sh/reservation-restricted-options` counts; an invalid text counts as absent.
    """
    text = annotations.get(keys.RESERVATION_RESTRICTED_OPTIONS)
    try:
        return frozenset(lenient_json.decode(text, _RestrictedOptions).resources) if text else frozenset()
    except InvalidInput:
        return frozenset()


def inner_reserved(annotations: Mapping[str, str]) -> dict[str, int]:
    """Return the amounts of a Reservation that its owners may not use. `node.koordinator.sh/reservation` counts; an
    invalid text counts as absent.

    Returns:
        Resource -> amount: milli-cores for cpu, whole units for everything else.
    """
    return _amounts(annotations.get(keys.NODE_RESERVATION))


def resized_amounts(annotations: Mapping[str, str]) -> dict[str, int]:
    """Return the amounts that replace those of a Reservation's pod template after a resize.
    `scheduling.koordinator.sh/reservation-resize-allocatable` counts; an invalid text counts as absent.

    Returns:
        Resource -> amount: milli-cores for cpu, whole units for everything else.
    """
    return _amounts(annotations.get(keys.RESERVATION_RESIZE_ALLOCATABLE))


def _amounts(text: str | None) -> dict[str, int]:
    try:
        return parse_amounts(lenient_json.decode(text, _Amounts).resources) if text else {}
    except InvalidInput:
        return {}


def _decoded(text: str, kind: type[T], key: str) -> T:
    try:
        return lenient_json.decode(text, kind)
    except InvalidInput as error:
        raise error.at(f"metadata.annotations[{key}]") from error


def readable_reservation(raw: object) -> Reservation | None:
    """Convert a decoded JSON object to a Reservation; None if a field has a wrong type."""
    try:
        return reservation_from_json(raw)
    except codec.DecodeError:
        return None


def phase_by_others(reservation: Reservation | None) -> str:
    """Return the phase in the status of a Reservation that another scheduler wrote: Available, Succeeded or Failed.
    Empty for another phase, for Available without a node, or if `reservation` is None. The caller must know that our
    log has neither placed nor ended the Reservation. Then another scheduler wrote the status.
    """
    if reservation is None:
        return ""
    status = reservation.status
    if status.phase == AVAILABLE:
        return AVAILABLE if status.node_name else ""
    return status.phase if status.phase in FINAL_PHASES else ""


def status_by_others(reservation: Reservation) -> ReservationStatus:
    """Return the status of a Reservation that another scheduler wrote into its object, without conditions. The amounts
    that owners take from the Reservation are not known. They are assumed to be the owners' requests, at most what the
    Reservation holds.

    Raises:
        InvalidInput: A quantity of the status is invalid.
    """
    status = reservation.status
    allocatable, allocated = parse_amounts(status.allocatable), parse_amounts(status.allocated)
    owners = [ReservationOwner(*(owner.get(key, "") for key in _OWNER_KEYS)) for owner in status.current_owners]
    return ReservationStatus(
        phase=status.phase or PENDING,
        node=status.node_name,
        allocatable=allocatable,
        allocated=allocated,
        taken={name: min(amount, allocatable[name]) for name, amount in allocated.items() if name in allocatable},
        owners=sorted(owners, key=lambda owner: owner.uid),
    )


def is_reserve_pod(pod: kube.Pod) -> bool:
    """Return whether a pod only stands for a Reservation in the scheduler. `reserve_pod` makes such pods, with the
    annotation `scheduling.koordinator.sh/reserve-pod`.
    """
    return pod.metadata.annotations.get(keys.RESERVE_POD) == "true"


def reserve_pod(reservation: Reservation, phase: str = "", *, is_bound: bool = False) -> kube.Pod:
    """Return the pod that stands for a Reservation in the scheduler. It exists nowhere else.

    Args:
        reservation: The Reservation; its uid becomes the pod's.
        phase: "Succeeded" or "Failed" if the Reservation has ended.
        is_bound: Whether another scheduler placed the Reservation. Node and amounts then come from the object's status.

    Raises:
        InvalidInput: A quantity of the template, or with `is_bound` of the status, is invalid.

    Source: scheduler-fine-grained spec, 3.2.
    """
    meta, template = reservation.metadata, reservation.spec.template or kube.PodTemplate()
    spec = template.spec
    annotations = {
        **template.metadata.annotations,
        **meta.annotations,
        keys.RESERVE_POD: "true",
        keys.RESERVATION_NAME: meta.name,
    }
    if reservation.spec.pre_allocation:
        annotations[keys.IS_PRE_ALLOCATION] = "true"
    if spec.node_name:
        annotations[keys.RESERVATION_NODE] = spec.node_name
    own = msgspec.structs.replace(
        spec,
        node_name=reservation.status.node_name if is_bound else "",
        priority=spec.priority if spec.priority is not None else _priority(meta.labels),
        scheduler_name=spec.scheduler_name or _DEFAULT_SCHEDULER,
    )
    pod = kube.Pod(
        metadata=msgspec.structs.replace(
            template.metadata,
            name=meta.name,
            uid=meta.uid,
            namespace=template.metadata.namespace or "default",
            labels={**template.metadata.labels, **meta.labels},
            annotations=annotations,
            creation_timestamp=meta.creation_timestamp,
            deletion_timestamp=None,
        ),
        spec=own,
        status=PodStatus(phase=phase),
    )
    resized = parse_amounts(reservation.status.allocatable) if is_bound else resized_amounts(meta.annotations)
    return _with_amounts(pod, {**pod_requests(pod), **resized}) if resized else pod


def _with_amounts(pod: kube.Pod, amounts: Mapping[str, int]) -> kube.Pod:
    """Return the pod with one container that requests these amounts, and nothing else that requests any."""
    texts: Quantities = dict(format_resources({name: quantity_of(name, amount) for name, amount in amounts.items()}))
    empty = kube.ResourceRequirements()
    spec = pod.spec
    fake = kube.Container(name=_FAKE_CONTAINER, resources=kube.ResourceRequirements(requests=texts, limits=texts))
    containers = [msgspec.structs.replace(each, resources=empty) for each in spec.containers]
    init_containers = [msgspec.structs.replace(each, resources=empty) for each in spec.init_containers]
    changed: kube.PodSpec = msgspec.structs.replace(
        spec, containers=[*containers, fake], init_containers=init_containers, overhead={}, resources=None
    )
    return msgspec.structs.replace(pod, spec=changed)


def _priority(labels: Mapping[str, str]) -> int:
    text = labels.get(keys.SUB_PRIORITY, "")
    try:
        return int(text) if text else NEVER_A_VICTIM
    except ValueError:
        return NEVER_A_VICTIM


_MODE: Final = "Reservation"
_POLICY: Final = "Aligned"


def is_operating(pod: Pod) -> bool:
    """Return whether the pod's label `scheduling.koordinator.sh/operating-mode` is `Reservation`."""
    return pod.metadata.labels.get(keys.OPERATING_MODE) == _MODE


def reservation_of_pod(pod: Pod) -> Reservation | None:
    """Return the Reservation that a pod in operating mode Reservation acts as. Its owners are those of the annotation
    `scheduling.koordinator.sh/reservation-owners`. Only one pod may use it.

    Returns:
        None if the pod has another operating mode, does not run, is not ready, is being deleted, or has an invalid
        annotation.
    """
    meta, status = pod.metadata, pod.status
    is_ready = any(each.type == "Ready" and each.status == "True" for each in status.conditions)
    if not is_operating(pod) or status.phase != "Running" or not is_ready or meta.deletion_timestamp is not None:
        return None
    text = meta.annotations.get(keys.RESERVATION_OWNERS, "")
    try:
        owners = lenient_json.decode(text, list[ReservationOwnerRule]) if text else []
    except InvalidInput:
        return None
    template = PodTemplate(metadata=meta, spec=pod.spec)
    spec = ReservationSpec(template=template, owners=owners, allocate_once=True, allocate_policy=_POLICY)
    return Reservation(metadata=meta, spec=spec)
