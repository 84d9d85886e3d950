"""What every workload of the highly available overlays has: probes, resources, budgets, spread."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from support.kubernetes.control_plane import ROOT, missing_programs
from support.kubernetes.installation import NAMESPACE, NODE_NAMESPACE, rendered

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(missing_programs() is not None, reason="kubectl not built: `make test-kubernetes` needs Go"),
]

Json = dict[str, Any]
WITHOUT_PROBES = {("nats", "reloader")}
"""It sends signals to the server beside it, whose own probes count."""
SIZED = {"koord-manager": "manager", "koord-scheduler": "scheduler", "koord-descheduler": "descheduler"} | {
    "koord-projector": "projector",
    "koord-agent": "agent, per node",
    "koord-criproxy": "installer of the CRI proxy, per node",
    "nats": "NATS",
}


@pytest.fixture(scope="module", params=["ha", "operator"])
def objects(request: pytest.FixtureRequest) -> list[Json]:
    """The objects of an overlay."""
    return rendered(f"k8s/overlays/{request.param}")


def workloads(objects: list[Json]) -> dict[str, Json]:
    """Return name -> spec of Deployments, StatefulSets and DaemonSets."""
    kinds = ("Deployment", "StatefulSet", "DaemonSet")
    return {item["metadata"]["name"]: item["spec"] for item in objects if item["kind"] in kinds}


def containers(objects: list[Json]) -> Iterator[tuple[str, Json]]:
    """Yield each workload's name with each of its containers that stay."""
    for name, spec in workloads(objects).items():
        for container in spec["template"]["spec"]["containers"]:
            yield name, container


def test_every_container_has_probes(objects: list[Json]) -> None:
    """The first look is soon, and neither a slow start nor a busy node is a reason for a restart."""
    without = {
        (name, container["name"])
        for name, container in containers(objects)
        if not {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()
    }
    patience = [
        probe["periodSeconds"] * probe["failureThreshold"]
        for _, container in containers(objects)
        if (probe := container.get("startupProbe"))
    ]

    assert without == WITHOUT_PROBES
    timeouts = {
        probe.get("timeoutSeconds")
        for _, container in containers(objects)
        for kind in ("startupProbe", "livenessProbe", "readinessProbe")
        if (probe := container.get(kind))
    }

    assert timeouts == {5}
    assert min(patience) >= 120
    assert {
        container["readinessProbe"]["periodSeconds"]
        for _, container in containers(objects)
        if "readinessProbe" in container
    } == {2}


def test_a_rolling_restart_waits_until_a_server_of_the_log_has_caught_up(objects: list[Json]) -> None:
    """The paths with `js-enabled-only` and `js-server-only` answer before the streams have caught up."""
    started = [each["startupProbe"]["exec"]["command"] for _, each in containers(objects) if each["name"] == "nats"]

    assert [command[-1] for command in started] == ["http://127.0.0.1:8222/healthz"]


def test_every_container_has_requests_and_limits(objects: list[Json]) -> None:
    missing = [
        (name, container["name"])
        for name, container in containers(objects)
        if not {"cpu", "memory"} <= container["resources"]["requests"].keys()
        or not {"cpu", "memory", "ephemeral-storage"} <= container["resources"]["limits"].keys()
    ]

    assert missing == []


def amounts(resources: Json) -> str:
    """Return an amount as the sizing page writes it."""
    return f"{resources['cpu']}, {resources['memory']}"


def test_the_sizing_page_states_the_shipped_requests_and_limits(objects: list[Json]) -> None:
    page = (ROOT / "docs" / "guide" / "sizing.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|", page, re.MULTILINE)
    stated = {name: (requests, limits) for name, requests, limits in rows if name in SIZED.values()}
    shipped = {
        SIZED[name]: (amounts(container["resources"]["requests"]), amounts(container["resources"]["limits"]))
        for name, container in containers(objects)
        if name in SIZED and container["name"] != "reloader"
    }

    assert stated == shipped


def test_every_workload_with_replicas_has_a_budget_and_is_spread(objects: list[Json]) -> None:
    replicated = {name: spec for name, spec in workloads(objects).items() if spec.get("replicas", 1) > 1}
    budgets = {
        item["spec"]["selector"]["matchLabels"]["koord-app"]
        for item in objects
        if item["kind"] == "PodDisruptionBudget"
    }
    spread = {
        name
        for name, spec in replicated.items()
        for each in spec["template"]["spec"].get("topologySpreadConstraints", ())
        if each["topologyKey"] == "kubernetes.io/hostname"
        and each["labelSelector"] == spec["selector"]
        and each["labelSelector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    }

    services = {"koord-manager", "koord-scheduler", "koord-descheduler", "koord-issuer", "nats"}
    assert set(replicated) == budgets == spread == services


def test_a_second_apply_does_not_overwrite_the_configuration(objects: list[Json]) -> None:
    """The configuration of the manager is created once, from k8s/configuration.yaml."""
    maps = {item["metadata"]["name"] for item in objects if item["kind"] == "ConfigMap"}

    assert maps == {"koord-descheduler-config"}


def test_namespaces_enforce_pod_security(objects: list[Json]) -> None:
    levels = {
        item["metadata"]["name"]: item["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for item in objects
        if item["kind"] == "Namespace"
    }

    assert levels == {NAMESPACE: "restricted", NODE_NAMESPACE: "privileged"}


def test_the_projector_uses_what_the_operator_makes() -> None:
    """The operator derives the names of the Service and of the Secrets from the name of the Cluster."""
    by_kind = {(item["kind"], item["metadata"]["name"]): item for item in rendered("k8s/overlays/operator")}
    (cluster,) = (item for (kind, _), item in by_kind.items() if kind == "Cluster")
    name, database = cluster["metadata"]["name"], cluster["spec"]["bootstrap"]["initdb"]
    pod = by_kind["Deployment", "koord-projector"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    environment = {each["name"]: each for each in container["env"]}
    volumes = {each["name"]: each for each in pod["volumes"]}
    folders = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}

    assert f"--dsn=postgresql://{database['owner']}@/{database['database']}" in container["args"]
    assert environment["PGHOST"]["value"] == f"{name}-rw.{cluster['metadata']['namespace']}.svc"
    assert "PGPASSWORD" not in environment, "a password in the environment is read by everything that reads it"
    assert f"--password-file={folders['postgres-password']}/password" in container["args"]
    assert volumes["postgres-password"]["secret"]["secretName"] == f"{name}-app"
    assert environment["PGSSLMODE"]["value"] == "verify-full"
    assert environment["PGSSLROOTCERT"]["value"] == f"{folders['postgres-authority']}/ca.crt"
    authority = volumes["postgres-authority"]["secret"]
    assert (authority["secretName"], authority["items"]) == (f"{name}-ca", [{"key": "ca.crt", "path": "ca.crt"}])
