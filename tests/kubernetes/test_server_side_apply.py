"""Server-side apply of the manifests meets no conflict and changes nothing, also after client-side apply.

Client-side apply owns the fields of an object with the defaults that the API server has added. Some fields are owned as
a whole, such as `fieldRef` and `volumeClaimTemplates`. If a manifest does not state their defaults, server-side apply
sees another value of another owner: a conflict.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.kubernetes.control_plane import TOOLS, ControlPlane
from support.kubernetes.helm import DEV, build_chart, helm_objects, missing_helm
from support.kubernetes.installation import install, rendered, with_mirror
from support.until import until_blocking

CLUSTER_DEFINITION = TOOLS / "cloudnative-pg.yaml"
pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(missing_helm() is not None, reason="helm not built: `make test-kubernetes` needs Go"),
    pytest.mark.skipif(not CLUSTER_DEFINITION.exists(), reason="not fetched: `make test-kubernetes` needs Go"),
]

Json = dict[str, Any]
DIFF = "diff on the server's side"
LOOKS = 5
STEPS = {
    "apply on the client's side": ("apply", "-f", "-"),
    "apply on the server's side": ("apply", "--server-side", "-f", "-"),
    "apply again": ("apply", "--server-side", "-f", "-"),
    DIFF: ("diff", "--server-side", "-f", "-"),
}
KEPT = ("Namespace", "CustomResourceDefinition")
"""Kinds that are not made anew, because the deletion of such an object takes others with it."""


@pytest.fixture
def prepared(plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with the definition of a `Cluster`; afterwards k8s/overlays/dev is installed as before."""
    plane.kubectl("create", "-f", str(CLUSTER_DEFINITION))
    try:
        is_served = ("get", "clusters.postgresql.cnpg.io", "--all-namespaces")
        until_blocking(lambda: plane.ask(*is_served).code == 0, "the API server serves the kind", every=0.5)
        yield plane
    finally:
        plane.kubectl("delete", "-f", str(CLUSTER_DEFINITION))
        plane.kubectl("delete", "service", "koordinator-webhook-service", "-n", "koordinator-system")
        install(plane)


def renderings(folder: Path) -> Iterator[tuple[str, list[Json]]]:
    """Yield what we ship, with its name. Of each rendering only the objects that those before do not have."""
    before: list[Json] = []
    for name, documents in {
        "base": rendered("k8s/base"),
        "dev, by the chart": helm_objects(build_chart(folder), *DEV),
        "ha with a mirror": rendered(with_mirror(folder)),
        "operator": rendered("k8s/overlays/operator"),
    }.items():
        yield name, [item for item in documents if item not in before]
        before += documents


def trouble(plane: ControlPlane, documents: list[Json]) -> dict[str, str]:
    """Make objects on the client's side, take `STEPS`, and return what kubectl complains about or would change.

    kubectl reads an object and then asks for what it would change, and a controller may write in between. So a
    difference is one that stays.
    """
    anew = [item for item in documents if item["kind"] not in KEPT]
    plane.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=yaml.safe_dump_all(anew))
    text = yaml.safe_dump_all(documents)
    answers = {step: plane.ask(*words, stdin=text) for step, words in STEPS.items()}
    for _ in range(LOOKS):
        if answers[DIFF].code == 0:
            break
        answers[DIFF] = plane.ask(*STEPS[DIFF], stdin=text)
    return {step: answer.err or answer.out for step, answer in answers.items() if answer.code or answer.err}


def test_server_side_apply_after_client_side_apply_meets_no_conflict(prepared: ControlPlane, tmp_path: Path) -> None:
    found = {name: trouble(prepared, documents) for name, documents in renderings(tmp_path)}

    assert {name: steps for name, steps in found.items() if steps} == {}
