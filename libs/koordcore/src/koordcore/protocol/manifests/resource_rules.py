"""Validation rules of the Kubernetes API for amounts: of nodes, of containers, and of pods themselves.

Source: Kubernetes, ValidateResourceRequirements, validatePodResourceConsistency; KEP-2837.
"""

from collections.abc import Iterator
from typing import Final

from koordcore.protocol import objects as kube
from koordcore.protocol.manifests.names import Violations, is_key
from koordcore.protocol.objects import Quantities
from koordcore.protocol.pod_resources import MEMORY, pod_requests_nano
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import Quantity, parse_quantity, quantity_from_json
from koordcore.values.resources import CPU

_HUGEPAGES: Final = "hugepages-"
_NATIVE_RESOURCES: Final = {CPU, MEMORY, "ephemeral-storage", "pods", "storage"}
_OF_NO_CONTAINER: Final = ("pods", "storage")
_QUOTA_PREFIX: Final = "requests."
_INT64_MAX: Final = (1 << 63) - 1


def check_quantities(resources: Quantities, path: str) -> Iterator[InvalidInput]:
    """Yield every resource name and every amount in a resource list that is invalid."""
    for name, written in resources.items():
        where = f"{path}[{name}]"
        is_native = name in _NATIVE_RESOURCES
        if not is_key(name) or ("/" not in name and not is_native and not name.startswith(_HUGEPAGES)):
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
        elif not is_native and quantity.milli() % 1000:
            yield InvalidInput("a whole number", written, where)
        elif name.startswith(_HUGEPAGES):
            yield from _pages(name, quantity, written, where)


def _pages(name: str, quantity: Quantity, written: object, where: str) -> Violations:
    size = name.removeprefix(_HUGEPAGES)
    try:
        page = parse_quantity(size).nano
    except InvalidInput:
        page = 0
    if page <= 0:
        yield InvalidInput("the size of a page, such as hugepages-2Mi", name, where)
    elif quantity.nano % page:
        yield InvalidInput(f"a multiple of the page size {size}", written, where)


def is_overcommittable(name: str) -> bool:
    """Return whether limit and request of the resource may differ. True for native resources and resources under
    kubernetes.io, except hugepages.
    """
    domain, slash, _ = name.rpartition("/")
    if not slash:
        return not name.startswith(_HUGEPAGES)
    return domain == "kubernetes.io" or domain.endswith(".kubernetes.io")


def check_resources(resources: kube.ResourceRequirements, path: str) -> Violations:
    """Yield every violation in the requests and limits of a container."""
    requests, limits = resources.requests, resources.limits
    if not requests and not limits:
        return
    bad = [*check_container_amounts(requests, f"{path}.requests"), *check_container_amounts(limits, f"{path}.limits")]
    yield from bad
    if bad:
        return
    yield from _request_within_limit(requests, limits, path)
    names = {*requests, *limits}
    if any(name.startswith(_HUGEPAGES) for name in names) and not names & {CPU, MEMORY}:
        yield InvalidInput("with cpu or memory: hugepages require one of them", sorted(names), path)


def check_container_amounts(resources: Quantities, path: str) -> Violations:
    """Yield what is wrong with amounts of a container. What a node has besides, a container cannot take; and a resource
    of a quota is not one of a container.
    """
    for name in resources:
        if name in _OF_NO_CONTAINER or name.startswith(_QUOTA_PREFIX):
            yield InvalidInput("a resource of containers (cpu, memory, ... or <domain>/<name>)", name, path)
    yield from check_quantities(resources, path)


def _request_within_limit(requests: Quantities, limits: Quantities, path: str) -> Violations:
    for name, written in requests.items():
        limit = limits.get(name)
        if limit is None:
            if not is_overcommittable(name):
                yield InvalidInput(f"set as well: limits[{name}], equal to the request", None, f"{path}.limits[{name}]")
            continue
        request_quantity, limit_quantity = quantity_from_json(written), quantity_from_json(limit)
        if limit_quantity < request_quantity:
            yield InvalidInput(f"at most the limit {limit}", written, f"{path}.requests[{name}]")
        elif request_quantity != limit_quantity and not is_overcommittable(name):
            yield InvalidInput(f"equal to the limit {limit}", written, f"{path}.requests[{name}]")


def check_pod_resources(spec: kube.PodSpec, path: str) -> Violations:
    """Yield every violation in the amounts of a pod itself, compared with those of its containers.

    `path`: path of the spec.
    """
    own = spec.resources
    if own is None:
        return
    where = f"{path}.resources"
    foreign = [name for name in {**own.requests, **own.limits} if not _is_of_pods(name)]
    if foreign:
        yield InvalidInput("cpu, memory or hugepages: a pod itself can request nothing else", foreign, where)
    bad = list(check_resources(own, where))
    yield from bad
    if bad:
        return
    try:
        yield from _within_pod(spec, own, path)
    except InvalidInput:
        return  # an amount of a container is invalid, which is said there


def _within_pod(spec: kube.PodSpec, own: kube.ResourceRequirements, path: str) -> Violations:
    bare = kube.Pod(spec=kube.PodSpec(containers=spec.containers, init_containers=spec.init_containers))
    for name, nano in pod_requests_nano(bare).items():
        written = own.requests.get(name)
        if written is not None and quantity_from_json(written).nano < nano:
            rule = f"at least {Quantity(nano)}, the request of its containers"
            yield InvalidInput(rule, written, f"{path}.resources.requests[{name}]")
    for index, container in enumerate(spec.containers):
        for name, written in container.resources.limits.items():
            limit = own.limits.get(name)
            if limit is not None and quantity_from_json(limit) < quantity_from_json(written):
                rule = f"at most {limit}, the limit of the pod"
                yield InvalidInput(rule, written, f"{path}.containers[{index}].resources.limits[{name}]")


def _is_of_pods(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith(_HUGEPAGES)
