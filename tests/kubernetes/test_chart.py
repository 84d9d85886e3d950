"""The Helm chart renders the objects of the kustomizations, refuses wrong values, and installs them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.kubernetes.control_plane import ROOT, TOOLS, Answer, ControlPlane
from support.kubernetes.installation import install, reachable, rendered

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not (TOOLS / "helm").exists(), reason="helm not built: `make test-kubernetes` needs Go"),
]

Json = dict[str, Any]
DEV = ("--values", "k8s/chart/values-dev.yaml")
HA = ("--set", "apiServerCidrs={192.0.2.1/32}")
OPERATOR = (*HA, "--set", "postgres.mode=operator")
OVERLAYS = {"dev": DEV, "ha": HA, "operator": OPERATOR}
BASE = (*HA, "--set", "nodes.enabled=false,postgres.mode=none,postgres.authority=koord-projector")


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built chart."""
    folder = tmp_path_factory.mktemp("chart") / "koordstream"
    subprocess.run([sys.executable, "k8s/chart/build.py", str(folder)], cwd=ROOT, check=True)
    return folder


def helm(*words: str | Path) -> Answer:
    """Run helm and return what it printed."""
    command = [str(TOOLS / "helm"), *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return Answer(done.stdout, done.stderr, done.returncode)


def by_name(documents: list[Json]) -> dict[tuple[str, str, str], Json]:
    """Return objects by kind, namespace and name; each must occur once."""
    found = {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): item for item in documents
    }
    assert len(found) == len(documents)
    return found


def without_false_namespace(document: Json) -> Json:
    """Return an object without the namespace that kustomize gives to a FlowSchema, which has none."""
    if document["kind"] == "FlowSchema":
        document["metadata"].pop("namespace")
    return document


@pytest.mark.parametrize(
    ("folder", "flags"),
    [("k8s/base", BASE), *((f"k8s/overlays/{name}", each) for name, each in OVERLAYS.items())],
    ids=["base", *OVERLAYS],
)
def test_helm_renders_the_objects_of_kustomize(chart: Path, folder: str, flags: tuple[str, ...]) -> None:
    answer = helm("template", "koordstream", chart, "--include-crds", "--kube-version=1.35", *flags)

    assert (answer.code, answer.err) == (0, "")
    objects = by_name([item for item in yaml.safe_load_all(answer.out) if item])
    wanted = by_name([without_false_namespace(item) for item in rendered(folder)])
    assert objects.keys() == wanted.keys()
    assert [key for key, item in wanted.items() if objects[key] != item] == []


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("nats.servers=2", "/nats/servers"),
        ("nats.logSize=big", "/nats/logSize"),
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
        *("--set", "nats.logSize=20Gi,nats.mirror=dr-nats.example"),
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
