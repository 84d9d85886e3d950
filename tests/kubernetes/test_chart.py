"""The Helm chart renders the objects of the kustomizations, refuses wrong values, and installs them."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.helm import BASE, DEV, HA, MIRROR, OPERATOR, build_chart, helm, helm_objects, missing_helm
from support.kubernetes.installation import install, reachable, rendered, with_mirror

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(missing_helm() is not None, reason="helm not built: `make test-kubernetes` needs Go"),
]

Json = dict[str, Any]
OVERLAYS = {"dev": DEV, "ha": HA, "operator": OPERATOR}
UNKNOWN_TO_KUSTOMIZE = ("FlowSchema", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
"""Kinds without a namespace, newer than its list of kinds: it gives them one. The API server ignores it."""


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built chart."""
    return build_chart(tmp_path_factory.mktemp("chart"))


def by_name(documents: list[Json]) -> dict[tuple[str, str, str], Json]:
    """Return objects by kind, namespace and name; each must occur once."""
    found = {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): item for item in documents
    }
    assert len(found) == len(documents)
    return found


def without_false_namespace(document: Json) -> Json:
    """Return an object without the namespace that kustomize gives to a kind which has none."""
    if document["kind"] in UNKNOWN_TO_KUSTOMIZE:
        document["metadata"].pop("namespace")
    return document


@pytest.mark.parametrize(
    ("folder", "flags"),
    [("k8s/base", BASE), *((f"k8s/overlays/{name}", each) for name, each in OVERLAYS.items())],
    ids=["base", *OVERLAYS],
)
def test_helm_renders_the_objects_of_kustomize(chart: Path, folder: str, flags: tuple[str, ...]) -> None:
    assert_equal(helm_objects(chart, *flags), rendered(folder))


def test_helm_renders_the_objects_of_kustomize_with_a_mirror(chart: Path, tmp_path: Path) -> None:
    assert_equal(helm_objects(chart, *MIRROR), rendered(with_mirror(tmp_path)))


def assert_equal(documents: list[Json], wanted: list[Json]) -> None:
    """Assert that two renderings have the same objects."""
    ours, theirs = by_name(documents), by_name([without_false_namespace(item) for item in wanted])
    assert ours.keys() == theirs.keys()
    assert [key for key, item in theirs.items() if ours[key] != item] == []


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("nats.servers=2", "/nats/servers"),
        ("nats.logSize=big", "/nats/logSize"),
        ("nats.mirror=dr-nats.example", "/nats/mirrorCidrs"),
        ("manager.replicas=0", "/manager/replicas"),
        ("manager.resources.limits.memory=much", "/manager/resources/limits/memory"),
        ("apiServerCidrs={somewhere}", "/apiServerCidrs/0"),
        ("image=koordstream:1", "/apiServerCidrs"),
        ("schedular.replicas=1", "schedular"),
    ],
)
def test_a_wrong_value_is_named(chart: Path, value: str, named: str) -> None:
    answer = helm("lint", chart, "--set", value)

    assert answer.code == 1
    assert named in answer.out + answer.err


def test_a_value_reaches_its_objects(chart: Path) -> None:
    flags = (
        *("--set", "image=registry/koord:2,scheduler.replicas=3,apiServerCidrs={10.1.2.3/32}"),
        *("--set", "nats.logSize=20Gi,nats.mirror=dr-nats.example,nats.mirrorCidrs={10.1.2.4/32}"),
    )

    objects = by_name(
        [item for item in yaml.safe_load_all(helm("template", "k", chart, "--kube-version=1.35", *flags).out) if item]
    )

    policy = objects["NetworkPolicy", "koordinator-system", "api-server"]["spec"]
    assert objects["Deployment", "koordinator-system", "koord-scheduler"]["spec"]["replicas"] == 3
    pods = {
        name: objects["Deployment", "koordinator-system", name]["spec"]["template"]["spec"]
        for name in ("koord-keys", "koord-manager")
    }
    (keys,), (bootstrap,) = pods["koord-keys"]["containers"], pods["koord-manager"]["initContainers"]
    assert {"--log-size=20Gi", "--mirror=dr-nats.example"} <= set(keys["args"])
    assert "--log-size=20Gi" in bootstrap["args"]
    assert "koordstream:latest" not in "".join(yaml.safe_dump(item) for item in objects.values())
    mirror = objects["NetworkPolicy", "koordinator-system", "log-mirror"]["spec"]
    assert mirror["ingress"][0]["from"] == [{"ipBlock": {"cidr": "10.1.2.4/32"}}]
    assert policy["ingress"][0]["from"] == policy["egress"][0]["to"] == [{"ipBlock": {"cidr": "10.1.2.3/32"}}]


def test_an_installed_kustomization_can_be_handed_to_helm(plane: ControlPlane, chart: Path) -> None:
    """Helm takes the objects over, and they do not change."""
    access = ("--kubeconfig", str(plane.directory / "admin.kubeconfig"))
    try:
        taken = helm("install", "koordstream", chart, *DEV, "--take-ownership", *access)
        again = helm("upgrade", "koordstream", chart, *DEV, *access)
        plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(reachable(rendered())))
        difference = plane.ask("diff", "-f", "-", stdin=yaml.safe_dump_all(reachable(rendered())))

        assert (taken.code, taken.err) == (0, "")
        assert (again.code, again.err) == (0, "")
        assert (difference.code, difference.out) == (0, "")
    finally:
        plane.kubectl("delete", "secret", "-n", "default", "-l", "owner=helm")
        install(plane)
