"""Validation rules of the Kubernetes API for mirrored objects; each violation has field, rule and value.

`names`, `resource_rules` and `placement_rules` have the rules of single parts. `reader` has already checked the types.
`koordcore.protocol.pod_admission` has the rules of QoS and priority classes.

Source: reality spec, 1.7; Kubernetes, ValidatePodCreate.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from koordcore.protocol import objects as kube
from koordcore.protocol.manifests.names import Violations, check_labels, check_metadata, is_label, is_subdomain
from koordcore.protocol.manifests.placement_rules import check_placement, check_taints
from koordcore.protocol.manifests.resource_rules import (
    check_container_amounts,
    check_pod_resources,
    check_quantities,
    check_resources,
)
from koordcore.protocol.selectors import compile_selector
from koordcore.values.invalid import InvalidInput

MAX_REPLICAS = 150_000
MAX_CONTAINERS = 200
MAX_CONFIG_BYTES = 1_048_576

_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def check(kind: str, subject: Any) -> list[InvalidInput]:
    """Return every violation of the Kubernetes API's rules in a typed object; empty if it is valid."""
    return list(_CHECKS[kind](subject))


def _container(container: kube.Container, path: str) -> Violations:
    if not is_label(container.name):
        yield InvalidInput("a DNS label of at most 63 characters", container.name, f"{path}.name")
    if not container.image or container.image != container.image.strip():
        yield InvalidInput("an image reference without spaces around it", container.image, f"{path}.image")
    if container.restart_policy not in (None, *_RESTART_POLICIES):
        rule = f"absent or one of {', '.join(_RESTART_POLICIES)}"
        yield InvalidInput(rule, container.restart_policy, f"{path}.restartPolicy")
    yield from check_resources(container.resources, f"{path}.resources")
    for index, port in enumerate(container.ports):
        yield from _port(port, f"{path}.ports[{index}]")


def _port(port: kube.ContainerPort, path: str) -> Violations:
    if not 1 <= port.container_port <= 65535:
        yield InvalidInput("a port, 1..65535", port.container_port, f"{path}.containerPort")
    if not 0 <= port.host_port <= 65535:
        yield InvalidInput("a port, 1..65535, or absent", port.host_port, f"{path}.hostPort")
    if port.protocol not in ("TCP", "UDP", "SCTP"):
        yield InvalidInput("TCP, UDP or SCTP", port.protocol, f"{path}.protocol")
    try:
        if port.host_ip:
            ipaddress.ip_address(port.host_ip)
    except ValueError:
        yield InvalidInput("an IP address", port.host_ip, f"{path}.hostIP")


def _containers(spec: kube.PodSpec, path: str) -> Violations:
    """Yield every violation in containers, which may not share names, nor ports of the host if they run together."""
    names: set[str] = set()
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        taken: set[tuple[str, str, int]] = set()
        for index, container in enumerate(containers):
            where = f"{path}.{field}[{index}]"
            yield from _container(container, where)
            if container.name in names:
                yield InvalidInput("unique among the pod's containers", container.name, f"{where}.name")
            names.add(container.name)
            if field == "initContainers":
                taken = set()  # they run one after the other
            yield from _host_ports(container.ports, f"{where}.ports", taken, on_host=spec.host_network)


def _host_ports(
    ports: Sequence[kube.ContainerPort], path: str, taken: set[tuple[str, str, int]], *, on_host: bool
) -> Violations:
    """Yield ports of the host that are `taken` already, to which they are added, or differ from the pod's own."""
    for index, port in enumerate(ports):
        if not port.host_port:
            continue
        where = f"{path}[{index}].hostPort"
        if on_host and port.host_port != port.container_port:
            yield InvalidInput(f"{port.container_port}, the containerPort: hostNetwork is true", port.host_port, where)
        key = (port.protocol, port.host_ip, port.host_port)
        if key in taken:
            yield InvalidInput("unique by protocol, hostIP and hostPort", port.host_port, where)
        taken.add(key)


def _volumes(spec: kube.PodSpec, path: str) -> Violations:
    names: set[str] = set()
    for index, volume in enumerate(spec.volumes):
        where = f"{path}.volumes[{index}]"
        if not is_label(volume.name):
            yield InvalidInput("a DNS label of at most 63 characters", volume.name, f"{where}.name")
        if volume.name in names:
            yield InvalidInput("unique among the pod's volumes", volume.name, f"{where}.name")
        names.add(volume.name)
        claim = volume.persistent_volume_claim
        if claim is not None and not claim.claim_name:
            yield InvalidInput("given", claim.claim_name, f"{where}.persistentVolumeClaim.claimName")
        sources = (claim, volume.host_path, volume.empty_dir, volume.ephemeral)
        number = sum(source is not None for source in sources)
        if number > 1:
            yield InvalidInput("one source", f"{number} sources", where)


def _claims(spec: kube.PodSpec, path: str) -> Violations:
    names: set[str] = set()
    for index, claim in enumerate(spec.resource_claims):
        where = f"{path}.resourceClaims[{index}].name"
        if not is_label(claim.name):
            yield InvalidInput("a DNS label of at most 63 characters", claim.name, where)
        if claim.name in names:
            yield InvalidInput("unique among the pod's claims", claim.name, where)
        names.add(claim.name)


def _pod_spec(spec: kube.PodSpec, path: str, labels: Mapping[str, str]) -> Violations:
    if not spec.containers:
        yield InvalidInput("at least one container", [], f"{path}.containers")
    if len(spec.containers) + len(spec.init_containers) > MAX_CONTAINERS:
        yield InvalidInput(f"at most {MAX_CONTAINERS} containers", len(spec.containers), f"{path}.containers")
        return
    yield from _containers(spec, path)
    yield from check_container_amounts(spec.overhead, f"{path}.overhead")
    yield from check_pod_resources(spec, path)
    yield from check_labels(spec.node_selector, f"{path}.nodeSelector")
    yield from check_placement(spec, path, labels)
    yield from _volumes(spec, path)
    yield from _claims(spec, path)
    if spec.priority is not None and not -(1 << 31) <= spec.priority < (1 << 31):
        yield InvalidInput("an int32", spec.priority, f"{path}.priority")
    if spec.preemption_policy not in (None, "Never", "PreemptLowerPriority"):
        yield InvalidInput("Never or PreemptLowerPriority", spec.preemption_policy, f"{path}.preemptionPolicy")
    if spec.node_name and not is_subdomain(spec.node_name):
        yield InvalidInput("a node name", spec.node_name, f"{path}.nodeName")
    if spec.priority_class_name and not is_subdomain(spec.priority_class_name):
        yield InvalidInput("a priority class name", spec.priority_class_name, f"{path}.priorityClassName")


def _pod(pod: kube.Pod) -> Violations:
    yield from check_metadata(pod.metadata, namespaced=True)
    yield from _pod_spec(pod.spec, "spec", pod.metadata.labels)


def _node(node: kube.Node) -> Violations:
    yield from check_metadata(node.metadata, namespaced=False)
    yield from check_taints(node.spec.taints, "spec.taints")
    yield from check_quantities(node.status.capacity, "status.capacity")
    yield from check_quantities(node.status.allocatable, "status.allocatable")


def _config_map(config: kube.ConfigMap) -> Violations:
    yield from check_metadata(config.metadata, namespaced=True)
    size = 0
    for key, value in config.data.items():
        size += len(key) + len(value)
        if len(key) > 253 or not _CONFIG_KEY.fullmatch(key):
            yield InvalidInput("a key of at most 253 alphanumerics, '-', '_', '.'", key, "data")
    if size > MAX_CONFIG_BYTES:
        yield InvalidInput(f"at most {MAX_CONFIG_BYTES} characters in all", size, "data")


def _namespace(namespace: kube.Namespace) -> Violations:
    yield from check_metadata(namespace.metadata, namespaced=False)
    if not is_label(namespace.metadata.name):
        yield InvalidInput("a DNS label of at most 63 characters", namespace.metadata.name, "metadata.name")


def _priority_class(priority_class: kube.PriorityClass) -> Violations:
    yield from check_metadata(priority_class.metadata, namespaced=False)
    name, value, highest = priority_class.metadata.name, priority_class.value, 1_000_000_000
    if name.startswith("system-"):
        if _SYSTEM_CLASSES.get(name) != value:
            known = ", ".join(f"{one} ({number})" for one, number in _SYSTEM_CLASSES.items())
            yield InvalidInput(f"without the prefix system-, or one of {known}", f"{name} ({value})", "metadata.name")
    elif not -(1 << 31) <= value <= highest:
        yield InvalidInput(f"an int32 of at most {highest}", value, "value")
    if priority_class.preemption_policy not in ("Never", "PreemptLowerPriority"):
        yield InvalidInput("Never or PreemptLowerPriority", priority_class.preemption_policy, "preemptionPolicy")


def _workload(workload: kube.Workload) -> Violations:
    yield from check_metadata(workload.metadata, namespaced=True)
    if not 0 <= workload.replicas <= MAX_REPLICAS:
        field = "spec.replicas" if workload.kind == "Deployment" else "spec.parallelism"
        yield InvalidInput(f"0..{MAX_REPLICAS}", workload.replicas, field)
    template = workload.template
    yield from check_labels(template.metadata.labels, "spec.template.metadata.labels")
    if workload.kind == "Deployment" and workload.selector is not None:
        yield from _own_selector(workload.selector, template.metadata.labels)
    yield from _pod_spec(template.spec, "spec.template.spec", template.metadata.labels)


def _own_selector(selector: kube.LabelSelector, labels: dict[str, str]) -> Violations:
    try:
        compiled = compile_selector(selector)
    except InvalidInput as error:
        yield error.at("spec.selector")
        return
    if not compiled.requirements:
        yield InvalidInput("not empty", {}, "spec.selector")
    elif not compiled.matches(labels):
        yield InvalidInput("labels that the selector matches", labels, "spec.template.metadata.labels")


_CHECKS: dict[str, Callable[[Any], Violations]] = {
    "Pod": _pod,
    "Node": _node,
    "ConfigMap": _config_map,
    "Namespace": _namespace,
    "PriorityClass": _priority_class,
    "Deployment": _workload,
    "Job": _workload,
}
