"""The NetworkPolicies allow the connections that the services need, and no others.

The policies are evaluated, and not enforced: for each pair of pods and addresses, and each port that anybody uses.
"""

from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from support.kubernetes.control_plane import missing_programs
from support.kubernetes.installation import NAMESPACE, NODE_NAMESPACE, rendered, with_mirror
from support.kubernetes.network_policies import End, Policies, ends_of

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(missing_programs() is not None, reason="kubectl not built: `make test-kubernetes` needs Go"),
]

Json = dict[str, Any]
Connection = tuple[str, str, int]
"""Names of source and target, and the port of the target."""

DNS: Final = End("DNS", "10.1.0.1", "kube-system", {"k8s-app": "kube-dns"})
ELSEWHERE: Final = (
    DNS,
    End("API server", "192.0.2.1"),
    End("second server of the log", "192.0.2.2"),
    End("operator", "10.1.0.2", "cnpg-system", {"app.kubernetes.io/name": "cloudnative-pg"}),
    End("monitoring", "10.1.0.3", "monitoring", {"app": "prometheus"}),
    End("internet", "203.0.113.5"),
    End("shop", "10.1.0.4", "default", {"koord-app": "koord-projector"}),
    End("beside the operator", "10.1.0.5", "cnpg-system", {"app": "any"}),
)
UNLISTED: Final = (
    End("unlisted", "10.1.0.6", NAMESPACE, {"app": "any"}),
    End("unlisted on a node", "10.1.0.7", NODE_NAMESPACE, {"app": "any"}),
)
"""Pods in our namespaces to which only the policies for all pods apply."""
IN_SYSTEM: Final = ("koord-manager", "koord-scheduler", "koord-descheduler", "koord-projector", "koord-nightly")
OTHERS_IN_SYSTEM: Final = ("koord-issuer", "koord-keys", "nats", "unlisted")
NEEDED: Final[set[Connection]] = {
    *((name, "nats", 4222) for name in (*IN_SYSTEM, "koord-issuer", "koord-agent")),
    ("nats", "nats", 6222),
    *product(("koord-manager", "koord-keys", "koord-issuer"), ("API server",), (443, 6443)),
    ("API server", "koord-manager", 9876),
    *((name, "DNS", 53) for name in (*IN_SYSTEM, *OTHERS_IN_SYSTEM, "koord-agent")),
    ("monitoring", "koord-manager", 8080),
    ("monitoring", "koord-projector", 8080),
    ("monitoring", "koord-scheduler", 10251),
    ("monitoring", "koord-descheduler", 10251),
    ("monitoring", "koord-agent", 9316),
    ("monitoring", "koord-devicediscovery", 9317),
    ("monitoring", "koord-criproxy", 9318),
    ("monitoring", "koord-criproxy-removal", 9318),
}
OF_THE_API_SERVER: Final = (443, 6443, 9876)
PORTS: Final = (22, 53, 80, 443, 4222, 5432, 6222, 6443, 7422, 8000, 8080, 8222, 9187, 9316, 9317, 9318, 9876, 10251)


def allowed(objects: list[Json]) -> set[Connection]:
    """Return the connections that lead from, or to, a pod of our namespaces, and that the policies allow."""
    policies = Policies(objects)
    ends = [*ends_of(objects), *UNLISTED, *ELSEWHERE]
    return {
        (source.name, target.name, port)
        for source, target, port in product(ends, ends, PORTS)
        if {source.namespace, target.namespace} & {NAMESPACE, NODE_NAMESPACE} and policies.allow(source, target, port)
    }


def test_with_an_external_postgres_the_projector_alone_reaches_port_5432_of_every_address() -> None:
    postgres = {("koord-projector", end.name, 5432) for end in ELSEWHERE}

    assert allowed(rendered("k8s/overlays/ha")) == NEEDED | postgres


def test_a_mirror_of_the_log_reaches_its_servers_on_one_port(tmp_path: Path) -> None:
    postgres = {("koord-projector", end.name, 5432) for end in ELSEWHERE}

    assert allowed(rendered(with_mirror(tmp_path))) == NEEDED | postgres | {("second server of the log", "nats", 7422)}


def test_the_instances_of_the_operator_reach_each_other_and_the_api_server() -> None:
    name = "koord-postgres"

    assert allowed(rendered("k8s/overlays/operator")) == NEEDED | {
        ("koord-projector", name, 5432),
        (name, name, 5432),
        (name, name, 8000),
        ("operator", name, 8000),
        (name, "API server", 443),
        (name, "API server", 6443),
        (name, "DNS", 53),
    }


def test_with_one_postgres_the_api_server_alone_may_have_any_address() -> None:
    found = allowed(rendered("k8s/overlays/dev"))
    postgres = {("koord-projector", "postgres", 5432), ("postgres", "DNS", 53)}

    assert found >= NEEDED | postgres
    assert {each for each in found - NEEDED - postgres if each[2] not in OF_THE_API_SERVER} == set()


def test_names_are_asked_by_udp_too() -> None:
    objects = rendered("k8s/overlays/ha")
    policies = Policies(objects)

    asking = {end.name for end in (*ends_of(objects), *UNLISTED) if policies.allow(end, DNS, 53, "UDP")}
    assert asking == {source for source, target, _ in NEEDED if target == "DNS"}
