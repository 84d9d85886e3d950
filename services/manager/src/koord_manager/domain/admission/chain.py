"""Run admission: first change the object, then validate it.

`mutate` and `validate` do the work of one webhook each. `admit` runs both, as the API server does, for `koord apply`
and `koord lint`. If an object has the wrong shape, it is denied with the field; no function raises an error.

Source:
    manager spec, 7.1, 8 to 13
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec
from koordcore.protocol.objects import Pod, pod_from_json
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.colocation_profile import mutate_reservation, pod_namespace
from koord_manager.domain.admission.config_maps import config_cautions, validate_config
from koord_manager.domain.admission.context.facts import Facts
from koord_manager.domain.admission.context.quota import Quota, QuotaTree, read_quota, tree_with
from koord_manager.domain.admission.nodes import amplify_node, validate_node
from koord_manager.domain.admission.options import Draw, Options, draws_of
from koord_manager.domain.admission.pods.impossible import impossible_requests
from koord_manager.domain.admission.pods.mutating import mutate_pod
from koord_manager.domain.admission.pods.validating import validate_pod
from koord_manager.domain.admission.quotas.quota_objects import default_quota, validate_quota
from koord_manager.domain.admission.request import (
    AdmissionDecision,
    JsonObject,
    Operation,
    Refused,
    Request,
    Violation,
    violation_of,
)

UNREADABLE: Final = "unreadable"
"""Rule id of an object of the wrong shape."""
FAILED_MUTATION: Final = "mutation"
"""Rule id of a mutation that failed, such as an unknown priority class or a patch that cannot be applied."""

Mutated = tuple[JsonObject, list[str]]
_TOO_DEEP: Final = Violation(rule=UNREADABLE, field="", message="the object is nested too deeply")


class Surroundings(NamedTuple):
    """Everything besides the request that the steps of admission read."""

    facts: Facts  # Profiles, namespaces, priority classes, quotas and configuration of the cluster
    quotas: QuotaTree
    options: Options
    # Function that maps the name of a profile to a number from 0 to below 100. A profile with a probability applies if
    # the number is below its percentage.
    draw: Draw


def surroundings(
    request: Request,
    facts: Facts,
    options: Options,
    *,
    pending: Mapping[str, Quota | None] | None = None,
    draw: Draw | None = None,
) -> Surroundings:
    """Return everything besides the request that the steps of admission read.

    Args:
        pending: Quota name -> accepted quota that was not observed yet, or None for an accepted deletion.
        draw: Random numbers for profiles with a probability; by default derived from the uid of the request.
    """
    return Surroundings(facts, tree_with(facts.quotas, pending or {}), options, draw or draws_of(request.uid))


def mutate(request: Request, around: Surroundings) -> AdmissionDecision:
    """Run the mutating webhook for the kind of the request's object, and return its decision.

    Without such a webhook, or if its gate is off, the object is allowed unchanged. If the webhook fails, the decision
    contains a violation.
    """
    step = _MUTATORS.get((request.resource, request.subresource))
    if step is None or request.object is None:
        return AdmissionDecision(object=request.object)
    gate, run = step
    if not around.options.enabled(gate):
        return AdmissionDecision(object=request.object)
    try:
        mutated, steps = run(request, request.object, around)
    except InvalidInput as error:
        return AdmissionDecision(object=request.object, violations=[violation_of(error, FAILED_MUTATION)])
    except RecursionError:
        return AdmissionDecision(object=request.object, violations=[_TOO_DEEP])
    return AdmissionDecision(object=mutated, steps=tuple(steps))


def validate(request: Request, around: Surroundings) -> AdmissionDecision:
    """Run the validating webhook for the kind of the request's object, and return its decision, which changes nothing.

    Without such a webhook, or if its gate is off, the object is allowed.
    """
    step = _VALIDATORS.get((request.resource, request.subresource))
    if step is None:
        return AdmissionDecision(object=request.object)
    gate, run = step
    if not around.options.enabled(gate):
        return AdmissionDecision(object=request.object)
    try:
        violations = run(request, around)
    except Refused as refused:
        violations = refused.violations
    except InvalidInput as error:
        violations = [violation_of(error, UNREADABLE)]
    except RecursionError:
        violations = [_TOO_DEEP]
    return AdmissionDecision(object=request.object, violations=violations, warnings=_warnings(request, around))


def _warnings(request: Request, around: Surroundings) -> tuple[str, ...]:
    if request.resource == "pods":
        return _pod_warnings(request, around)
    if request.resource != "configmaps" or request.object is None or request.operation is Operation.DELETE:
        return ()
    names = around.facts.names
    try:
        ours = (names.slo_namespace, names.slo_name)
        return config_cautions(request.object, ours=ours, namespace=request.namespace)
    except (InvalidInput, RecursionError):
        return ()  # said as a violation


def _pod_warnings(request: Request, around: Surroundings) -> tuple[str, ...]:
    """Return warnings about a new pod; an object that is not a pod was refused before."""
    if request.operation is not Operation.CREATE or request.object is None or request.subresource:
        return ()
    try:
        return impossible_requests(pod_from_json(request.object), around.facts.hardware)
    except (codec.DecodeError, RecursionError):
        return ()


def admit(request: Request, around: Surroundings) -> AdmissionDecision:
    """Change the object with the mutating webhook, validate the result, and return one decision for both."""
    mutated = mutate(request, around)
    if not mutated.allowed:
        return mutated
    after = request if mutated.object is request.object else msgspec.structs.replace(request, object=mutated.object)
    decision = validate(after, around)
    return AdmissionDecision(
        object=mutated.object, steps=mutated.steps, violations=decision.violations, warnings=decision.warnings
    )


def read_pod(document: JsonObject, what: str = "a pod") -> Pod:
    """Convert a pod from JSON to a typed object. `what`: its name in error messages.

    Raises:
        InvalidInput: A field has the wrong shape. The error has its path.
    """
    try:
        return pod_from_json(document)
    except (codec.DecodeError, RecursionError) as error:
        raise InvalidInput(f"{what} ({error})", None) from error


def _mutate_pod(request: Request, document: JsonObject, around: Surroundings) -> Mutated:
    return mutate_pod(request.operation, document, request.namespace, around.facts, around.options, around.draw)


def _mutate_node_status(request: Request, document: JsonObject, around: Surroundings) -> Mutated:
    del around
    return amplify_node(request.operation, document, request.old_object)


def _mutate_quota(request: Request, document: JsonObject, around: Surroundings) -> Mutated:
    return default_quota(request.operation, document, around.quotas)


def _mutate_reservation(request: Request, document: JsonObject, around: Surroundings) -> Mutated:
    return mutate_reservation(request.operation, document, around.facts, around.draw)


def _validate_pod(request: Request, around: Surroundings) -> list[Violation]:
    if request.operation not in (Operation.CREATE, Operation.UPDATE) or request.object is None:
        return []
    old = None
    if request.operation is Operation.UPDATE and request.old_object is not None:
        old = read_pod(request.old_object, "the stored pod")
    namespace = pod_namespace(request.object, request.namespace)
    pod = read_pod(request.object)
    return validate_pod(pod, old, namespace, around.facts, around.quotas, around.options)


def _validate_node(request: Request, around: Surroundings) -> list[Violation]:
    if request.object is None:
        return []
    return validate_node(request.operation, request.object, request.old_object, around.facts.slo_config)


def _validate_config_map(request: Request, around: Surroundings) -> list[Violation]:
    if request.object is None:
        return []
    names = around.facts.names
    return validate_config(
        request.operation,
        request.object,
        request.old_object,
        ours=(names.slo_namespace, names.slo_name),
        namespace=request.namespace,
        nodes=around.facts.nodes(),
        check_names=around.options.check_strategy_names,
    )


def _validate_quota(request: Request, around: Surroundings) -> list[Violation]:
    quota = read_quota(request.object) if request.object is not None else None
    old = read_quota(request.old_object) if request.old_object is not None else None
    if request.operation is Operation.DELETE and old is None and request.name:
        old = around.quotas.get(request.name)
    found = validate_quota(request.operation, quota, old, around.quotas, around.facts, around.options)
    return [found] if found is not None else []


_MUTATORS: Final[dict[tuple[str, str], tuple[str, Callable[[Request, JsonObject, Surroundings], Mutated]]]] = {
    ("pods", ""): ("PodMutatingWebhook", _mutate_pod),
    ("nodes", "status"): ("NodeMutatingWebhook", _mutate_node_status),
    ("elasticquotas", ""): ("ElasticMutatingWebhook", _mutate_quota),
    ("reservations", ""): ("ReservationMutatingWebhook", _mutate_reservation),
}
_VALIDATORS: Final[dict[tuple[str, str], tuple[str, Callable[[Request, Surroundings], list[Violation]]]]] = {
    ("pods", ""): ("PodValidatingWebhook", _validate_pod),
    ("nodes", ""): ("NodeValidatingWebhook", _validate_node),
    ("configmaps", ""): ("ConfigMapValidatingWebhook", _validate_config_map),
    ("elasticquotas", ""): ("ElasticValidatingWebhook", _validate_quota),
}
