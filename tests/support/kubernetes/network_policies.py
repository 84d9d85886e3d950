"""Which connections the NetworkPolicies of manifests allow; no network is needed.

Source:
    https://kubernetes.io/docs/reference/kubernetes-api/policy-resources/network-policy-v1/
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any

Json = dict[str, Any]
NAME_OF_NAMESPACE = "kubernetes.io/metadata.name"


@dataclass(frozen=True)
class End:
    """One end of a connection: a pod, or an address outside of the cluster, which has no namespace.

    Attributes:
        name: How a test names it.
        address: Its IP address.
        namespace: Namespace of the pod, or "".
        labels: Labels of the pod.
        ports: Name -> number of the ports that its containers declare.
    """

    name: str
    address: str
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    ports: Mapping[str, int] = field(default_factory=dict[str, int])


def ends_of(objects: Sequence[Json]) -> Iterator[End]:
    """Yield a pod of each workload, with an address in 10.0.0.0/16."""
    for number, item in enumerate(objects):
        spec: Json = item.get("spec", {})
        match item["kind"]:
            case "Deployment" | "StatefulSet" | "DaemonSet":
                template: Json = spec["template"]
            case "CronJob":
                template = spec["jobTemplate"]["spec"]["template"]
            case "Cluster":  # of CloudNativePG, which makes its pods
                template = {"metadata": spec["inheritedMetadata"], "spec": {"containers": []}}
            case _:
                continue
        assert not template["spec"].get("hostNetwork"), "no policy applies to a pod in the network of its node"
        ports = {
            port["name"]: port["containerPort"]
            for container in template["spec"]["containers"]
            for port in container.get("ports", ())
        }
        meta: Json = item["metadata"]
        address = str(ip_address("10.0.0.0") + number)
        yield End(meta["name"], address, meta["namespace"], template["metadata"]["labels"], ports)


class Policies:
    """The NetworkPolicies of manifests.

    Args:
        objects: The objects of the manifests. A namespace that is not among them has no label but its name.
    """

    def __init__(self, objects: Sequence[Json]) -> None:
        self._policies = [item for item in objects if item["kind"] == "NetworkPolicy"]
        self._labels: dict[str, dict[str, str]] = {
            item["metadata"]["name"]: item["metadata"].get("labels", {})
            for item in objects
            if item["kind"] == "Namespace"
        }

    def allow(self, source: End, target: End, port: int, protocol: str = "TCP") -> bool:
        """Return whether the source may open a connection to a port of the target."""

        def passes(subject: End, other: End, way: str, peers: str) -> bool:
            selecting = [
                policy
                for policy in self._policies
                if policy["metadata"]["namespace"] == subject.namespace
                and way in policy["spec"]["policyTypes"]
                and _selects(policy["spec"]["podSelector"], subject.labels)
            ]
            return not selecting or any(
                self._is_peer(rule.get(peers), other, subject.namespace)
                and _is_port(rule.get("ports"), target, port, protocol)
                for policy in selecting
                for rule in policy["spec"].get(way.lower()) or ()
            )

        return passes(source, target, "Egress", "to") and passes(target, source, "Ingress", "from")

    def _is_peer(self, peers: list[Json] | None, end: End, namespace: str) -> bool:
        """Return whether an end is among the peers of a rule; no list means everybody."""
        return not peers or any(self._matches(peer, end, namespace) for peer in peers)

    def _matches(self, peer: Json, end: End, namespace: str) -> bool:
        if "ipBlock" in peer:
            block, address = peer["ipBlock"], ip_address(end.address)
            inside = [ip_network(each) for each in (block["cidr"], *block.get("except", ()))]
            return address in inside[0] and not any(address in each for each in inside[1:])
        if not end.namespace or not _selects(peer.get("podSelector", {}), end.labels):
            return False
        if "namespaceSelector" not in peer:
            return end.namespace == namespace
        labels = {**self._labels.get(end.namespace, {}), NAME_OF_NAMESPACE: end.namespace}
        return _selects(peer["namespaceSelector"], labels)


def _selects(selector: Json, labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()) and all(
        _holds(each["operator"], labels.get(each["key"]), each.get("values", ()))
        for each in selector.get("matchExpressions", ())
    )


def _holds(operator: str, value: str | None, values: Sequence[str]) -> bool:
    return {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[operator]


def _is_port(rules: list[Json] | None, target: End, port: int, protocol: str) -> bool:
    """Return whether a port of the target is among those of a rule; no list means every port."""

    def numbers(rule: Json) -> range:
        found = rule.get("port", port)
        first = target.ports.get(found, -1) if isinstance(found, str) else found
        return range(first, rule.get("endPort", first) + 1)

    return not rules or any(rule.get("protocol", "TCP") == protocol and port in numbers(rule) for rule in rules)
