"""Validation rules of the Kubernetes API for mirrored objects; each violation has field, rule and value.

`reader` has already checked the types. `koordcore.protocol.pod_admission` has the rules of QoS and priority classes.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from koordcore.protocol import objects as kube
from koordcore.protocol.objects import Quantities
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import quantity_from_json

Violations = Iterator[InvalidInput]

MAX_REPLICAS = 150_000
MAX_CONTAINERS = 200
MAX_ANNOTATIONS_BYTES = 262_144
MAX_CONFIG_BYTES = 1_048_576
_INT64_MAX = (1 << 63) - 1

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")

_NATIVE_RESOURCES = {"cpu", "memory", "ephemeral-storage", "pods", "storage"}
_TAINT_EFFECTS = {"NoSchedule", "PreferNoSchedule", "NoExecute"}
_SELECTOR_OPERATORS = {"In", "NotIn", "Exists", "DoesNotExist"}
_NODE_SELECTOR_OPERATORS = _SELECTOR_OPERATORS | {"Gt", "Lt"}


def check(kind: str, subject: Any) -> list[InvalidInput]:
    """Return every violation of the Kubernetes API's rules in a typed object; empty if it is valid."""
    return list(_CHECKS[kind](subject))


def check_metadata(meta: kube.ObjectMeta, *, namespaced: bool) -> list[InvalidInput]:
    """Return every violation of the rules for metadata. Used for kinds whose other rules are in their schema.
    `namespaced`: whether objects of the kind have a namespace.
    """
    return list(_metadata(meta, "metadata", namespaced=namespaced))


def check_taints(taints: list[kube.Taint], path: str) -> Violations:
    """Yield every violation of the rules for taints of a node or of a Reservation. `path`: path of the list in the
    document.
    """
    for index, taint in enumerate(taints):
        where = f"{path}[{index}]"
        if not _is_key(taint.key):
            yield InvalidInput("a label key", taint.key, f"{where}.key")
        if not _is_label_value(taint.value):
            yield InvalidInput("a label value", taint.value, f"{where}.value")
        if taint.effect not in _TAINT_EFFECTS:
            yield InvalidInput(f"one of {', '.join(sorted(_TAINT_EFFECTS))}", taint.effect, f"{where}.effect")


def _is_subdomain(text: str) -> bool:
    return len(text) <= 253 and _DNS_SUBDOMAIN.fullmatch(text) is not None


def _is_label(text: str) -> bool:
    return len(text) <= 63 and _DNS_LABEL.fullmatch(text) is not None


def _is_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return (not slash or _is_subdomain(prefix)) and len(name) <= 63 and _QUALIFIED_NAME.fullmatch(name) is not None


def _is_label_value(text: str) -> bool:
    return len(text) <= 63 and _LABEL_VALUE.fullmatch(text) is not None


def _labels(labels: dict[str, str], path: str) -> Violations:
    for key, value in labels.items():
        if not _is_key(key):
            yield InvalidInput("a label key (optional DNS prefix / name of at most 63 characters)", key, path)
        if not _is_label_value(value):
            yield InvalidInput("a label value (at most 63 alphanumerics, '-', '_', '.')", value, f"{path}[{key}]")


def _metadata(meta: kube.ObjectMeta, path: str, *, namespaced: bool, named: bool = True) -> Violations:
    if named and not _is_subdomain(meta.name):
        yield InvalidInput("a DNS subdomain name of at most 253 characters", meta.name, f"{path}.name")
    if namespaced and not _is_label(meta.namespace):
        yield InvalidInput("a DNS label of at most 63 characters", meta.namespace, f"{path}.namespace")
    if not namespaced and meta.namespace:
        yield InvalidInput("absent: the kind is cluster-scoped", meta.namespace, f"{path}.namespace")
    yield from _labels(meta.labels, f"{path}.labels")
    size = 0
    for key, value in meta.annotations.items():
        size += len(key) + len(value)
        if not _is_key(key.lower()):
            yield InvalidInput("an annotation key (optional DNS prefix / name)", key, f"{path}.annotations")
    if size > MAX_ANNOTATIONS_BYTES:
        yield InvalidInput(f"at most {MAX_ANNOTATIONS_BYTES} characters in all", size, f"{path}.annotations")


def _quantities(resources: Quantities, path: str) -> Iterator[InvalidInput]:
    for name, written in resources.items():
        where = f"{path}[{name}]"
        if not _is_key(name) or (
            "/" not in name and name not in _NATIVE_RESOURCES and not name.startswith("hugepages-")
        ):
            yield InvalidInput("a resource name (cpu, memory, ... or <domain>/<name>)", name, path)
            continue
        try:
            quantity = quantity_from_json(written)
        except InvalidInput as error:
            yield error.at(where)
            continue
        if quantity.nano < 0:
            yield InvalidInput("not negative", written, where)
        elif quantity.milli() > _INT64_MAX:
            yield InvalidInput("at most 9223372036854775 (int64 in thousandths)", written, where)
        elif name not in _NATIVE_RESOURCES and quantity.milli() % 1000:
            yield InvalidInput("a whole number", written, where)


def _is_overcommittable(name: str) -> bool:
    """Return whether limit and request of the resource may differ. True for native resources and resources under
    kubernetes.io, except hugepages.
    """
    domain, slash, _ = name.rpartition("/")
    if not slash:
        return not name.startswith("hugepages-")
    return domain == "kubernetes.io" or domain.endswith(".kubernetes.io")


def _container(container: kube.Container, path: str) -> Violations:
    if not _is_label(container.name):
        yield InvalidInput("a DNS label of at most 63 characters", container.name, f"{path}.name")
    if not container.image:
        yield InvalidInput("an image reference", container.image, f"{path}.image")
    requests, limits = container.resources.requests, container.resources.limits
    if requests or limits:
        bad = [*_quantities(requests, f"{path}.resources.requests"), *_quantities(limits, f"{path}.resources.limits")]
        yield from bad
        if not bad:
            yield from _request_within_limit(requests, limits, f"{path}.resources")
    for index, port in enumerate(container.ports):
        where = f"{path}.ports[{index}]"
        if not 1 <= port.container_port <= 65535:
            yield InvalidInput("a port, 1..65535", port.container_port, f"{where}.containerPort")
        if not 0 <= port.host_port <= 65535:
            yield InvalidInput("a port, 1..65535, or absent", port.host_port, f"{where}.hostPort")
        if port.protocol not in ("TCP", "UDP", "SCTP"):
            yield InvalidInput("TCP, UDP or SCTP", port.protocol, f"{where}.protocol")


def _request_within_limit(requests: Quantities, limits: Quantities, path: str) -> Violations:
    for name, written in requests.items():
        limit = limits.get(name)
        if limit is None:
            if not _is_overcommittable(name):
                yield InvalidInput(f"set as well: limits[{name}], equal to the request", None, f"{path}.limits[{name}]")
            continue
        request_quantity, limit_quantity = quantity_from_json(written), quantity_from_json(limit)
        if limit_quantity < request_quantity:
            yield InvalidInput(f"at most the limit {limit}", written, f"{path}.requests[{name}]")
        elif request_quantity != limit_quantity and not _is_overcommittable(name):
            yield InvalidInput(f"equal to the limit {limit}", written, f"{path}.requests[{name}]")


def _requirement(requirement: kube.LabelSelectorRequirement, path: str, operators: set[str]) -> Violations:
    if not _is_key(requirement.key):
        yield InvalidInput("a label key", requirement.key, f"{path}.key")
    operator, values = requirement.operator, requirement.values
    if operator not in operators:
        yield InvalidInput(f"one of {', '.join(sorted(operators))}", operator, f"{path}.operator")
    elif operator in ("In", "NotIn") and not values:
        yield InvalidInput(f"not empty for {operator}", values, f"{path}.values")
    elif operator in ("Exists", "DoesNotExist") and values:
        yield InvalidInput(f"empty for {operator}", values, f"{path}.values")
    elif operator in ("Gt", "Lt") and not (len(values) == 1 and re.fullmatch(r"-?\d{1,18}", values[0])):
        yield InvalidInput(f"one integer for {operator}", values, f"{path}.values")


def _node_term(term: kube.NodeSelectorTerm, path: str) -> Violations:
    for index, requirement in enumerate(term.match_expressions):
        yield from _requirement(requirement, f"{path}.matchExpressions[{index}]", _NODE_SELECTOR_OPERATORS)
    for index, requirement in enumerate(term.match_fields):
        where = f"{path}.matchFields[{index}]"
        if requirement.key != "metadata.name":
            yield InvalidInput("metadata.name", requirement.key, f"{where}.key")
        if requirement.operator not in ("In", "NotIn") or len(requirement.values) != 1:
            yield InvalidInput("In or NotIn with exactly one value", requirement.values, f"{where}.values")


def _node_affinity(spec: kube.PodSpec, path: str) -> Violations:
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is None:
        return
    where = f"{path}.affinity.nodeAffinity"
    if affinity.required is not None:
        terms_path = f"{where}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        if not affinity.required.node_selector_terms:
            yield InvalidInput("at least one term", [], terms_path)
        for index, term in enumerate(affinity.required.node_selector_terms):
            yield from _node_term(term, f"{terms_path}[{index}]")
    for index, preferred in enumerate(affinity.preferred):
        item = f"{where}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        if not 1 <= preferred.weight <= 100:
            yield InvalidInput("1..100", preferred.weight, f"{item}.weight")
        yield from _node_term(preferred.preference, f"{item}.preference")


def _tolerations(spec: kube.PodSpec, path: str) -> Violations:
    for index, toleration in enumerate(spec.tolerations):
        where = f"{path}.tolerations[{index}]"
        if toleration.key and not _is_key(toleration.key):
            yield InvalidInput("a label key", toleration.key, f"{where}.key")
        if toleration.operator not in ("Equal", "Exists"):
            yield InvalidInput("Equal or Exists", toleration.operator, f"{where}.operator")
        elif not toleration.key and toleration.operator != "Exists":
            yield InvalidInput("Exists when the key is empty", toleration.operator, f"{where}.operator")
        elif toleration.operator == "Exists" and toleration.value:
            yield InvalidInput("empty when the operator is Exists", toleration.value, f"{where}.value")
        if toleration.effect and toleration.effect not in _TAINT_EFFECTS:
            yield InvalidInput(f"one of {', '.join(sorted(_TAINT_EFFECTS))}", toleration.effect, f"{where}.effect")


def _pod_spec(spec: kube.PodSpec, path: str) -> Violations:
    if not spec.containers:
        yield InvalidInput("at least one container", [], f"{path}.containers")
    if len(spec.containers) + len(spec.init_containers) > MAX_CONTAINERS:
        yield InvalidInput(f"at most {MAX_CONTAINERS} containers", len(spec.containers), f"{path}.containers")
        return
    names: set[str] = set()
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers):
            where = f"{path}.{field}[{index}]"
            yield from _container(container, where)
            if container.name in names:
                yield InvalidInput("unique among the pod's containers", container.name, f"{where}.name")
            names.add(container.name)
            if container.restart_policy not in (None, "Always") or (
                container.restart_policy is not None and field == "containers"
            ):
                yield InvalidInput(
                    "Always, and on init containers only", container.restart_policy, f"{where}.restartPolicy"
                )
    yield from _quantities(spec.overhead, f"{path}.overhead")
    if spec.resources is not None:
        yield from _quantities(spec.resources.requests, f"{path}.resources.requests")
        yield from _quantities(spec.resources.limits, f"{path}.resources.limits")
    yield from _labels(spec.node_selector, f"{path}.nodeSelector")
    yield from _node_affinity(spec, path)
    yield from _tolerations(spec, path)
    if spec.priority is not None and not -(1 << 31) <= spec.priority < (1 << 31):
        yield InvalidInput("an int32", spec.priority, f"{path}.priority")
    if spec.preemption_policy not in (None, "Never", "PreemptLowerPriority"):
        yield InvalidInput("Never or PreemptLowerPriority", spec.preemption_policy, f"{path}.preemptionPolicy")
    if spec.node_name and not _is_subdomain(spec.node_name):
        yield InvalidInput("a node name", spec.node_name, f"{path}.nodeName")
    if spec.priority_class_name and not _is_subdomain(spec.priority_class_name):
        yield InvalidInput("a priority class name", spec.priority_class_name, f"{path}.priorityClassName")


def _pod(pod: kube.Pod) -> Violations:
    yield from _metadata(pod.metadata, "metadata", namespaced=True)
    yield from _pod_spec(pod.spec, "spec")


def _node(node: kube.Node) -> Violations:
    yield from _metadata(node.metadata, "metadata", namespaced=False)
    yield from check_taints(node.spec.taints, "spec.taints")
    yield from _quantities(node.status.capacity, "status.capacity")
    yield from _quantities(node.status.allocatable, "status.allocatable")


def _config_map(config: kube.ConfigMap) -> Violations:
    yield from _metadata(config.metadata, "metadata", namespaced=True)
    size = 0
    for key, value in config.data.items():
        size += len(key) + len(value)
        if len(key) > 253 or not _CONFIG_KEY.fullmatch(key):
            yield InvalidInput("a key of at most 253 alphanumerics, '-', '_', '.'", key, "data")
    if size > MAX_CONFIG_BYTES:
        yield InvalidInput(f"at most {MAX_CONFIG_BYTES} characters in all", size, "data")


def _namespace(namespace: kube.Namespace) -> Violations:
    yield from _metadata(namespace.metadata, "metadata", namespaced=False)
    if not _is_label(namespace.metadata.name):
        yield InvalidInput("a DNS label of at most 63 characters", namespace.metadata.name, "metadata.name")


def _priority_class(priority_class: kube.PriorityClass) -> Violations:
    yield from _metadata(priority_class.metadata, "metadata", namespaced=False)
    highest = 1_000_000_000
    if not -(1 << 31) <= priority_class.value <= highest and not priority_class.metadata.name.startswith("system-"):
        yield InvalidInput(f"an int32 of at most {highest}", priority_class.value, "value")
    if priority_class.preemption_policy not in ("Never", "PreemptLowerPriority"):
        yield InvalidInput("Never or PreemptLowerPriority", priority_class.preemption_policy, "preemptionPolicy")


def _workload(workload: kube.Workload) -> Violations:
    yield from _metadata(workload.metadata, "metadata", namespaced=True)
    if not 0 <= workload.replicas <= MAX_REPLICAS:
        field = "spec.replicas" if workload.kind == "Deployment" else "spec.parallelism"
        yield InvalidInput(f"0..{MAX_REPLICAS}", workload.replicas, field)
    template = workload.template
    yield from _labels(template.metadata.labels, "spec.template.metadata.labels")
    yield from _pod_spec(template.spec, "spec.template.spec")


_CHECKS: dict[str, Callable[[Any], Violations]] = {
    "Pod": _pod,
    "Node": _node,
    "ConfigMap": _config_map,
    "Namespace": _namespace,
    "PriorityClass": _priority_class,
    "Deployment": _workload,
    "Job": _workload,
}
