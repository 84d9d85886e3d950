"""Doubtful pods: what we refuse and what we set by default, as the API server's own code has it."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from koordcore.protocol.manifests import InvalidManifest, check_manifest, shape_manifest
from koordcore.protocol.objects import Container, Pod, ResourceRequirements, pod_from_json
from koordcore.protocol.pod_defaults import with_pod_defaults
from koordcore.protocol.qos import kube_qos
from koordcore.values.quantity import quantity_from_json
from support.depth import repeats
from support.oracle.drawing.dice import Dice
from support.oracle.drawing.faults import FAULTS, put
from support.oracle.drawing.pods import pod
from support.oracle.lines import Document
from support.oracle.program import FieldError, Oracle

pytestmark = pytest.mark.oracle

WANTED = {
    "topologyKey with a space": "no node can have such a label",
    "Gt of no number": "kube-scheduler cannot read it, and the pod could never run",
    "Gt of a fraction": "kube-scheduler cannot read it, and the pod could never run",
    "host address invalid": "no node can listen on it",
    "host address with leading zeros": "kubelets and runtimes read it in different ways",
    "maxSkew absent": "1: what we show of a pod leaves out values that are the default, and can be applied",
    "whenUnsatisfiable absent": "DoNotSchedule, as above",
}
"""Faults of which our verdict differs, and why it stays."""

PODS_OF_A_FAULT = 5


def ours(document: Document) -> list[str]:
    """The rules that a pod breaks for `koord apply` and `koord lint`."""
    try:
        check_manifest(shape_manifest(with_pod_defaults(document)))
    except InvalidManifest as error:
        return [str(violation) for violation in error.violations]
    return []


def verdicts(oracle: Oracle, documents: list[Document]) -> Iterator[tuple[Document, list[str], list[FieldError]]]:
    """Each pod, why we refuse it, and why the API server does; empty: it is accepted."""
    answer = oracle.ask({"nodes": [], "try": documents})
    for document, tried in zip(documents, answer.tried, strict=True):
        yield document, ours(document), tried.errors


def assert_agreed(oracle: Oracle, documents: list[Document]) -> None:
    for document, mine, theirs in verdicts(oracle, documents):
        told = f"ours: {mine}\nAPI server: {theirs}\n{document}"
        assert bool(mine) == bool(theirs), told


def _of(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.xfail(reason=WANTED[name], strict=True)) if name in WANTED else name


@pytest.mark.parametrize("name", list(map(_of, FAULTS)))
def test_doubtful_pods_are_refused_as_by_an_api_server(oracle: Oracle, name: str) -> None:
    plain: Document = {"containers": [{"name": "c0", "image": "i"}]}
    documents = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"app": "x"}}, "spec": plain}]
    documents += [pod(Dice(number), f"p{number}") for number in range(PODS_OF_A_FAULT)]
    for document in documents:
        put(document, deepcopy(FAULTS[name]))
    assert_agreed(oracle, documents)


@pytest.mark.parametrize("first", range(0, repeats(20_000, 2_000), 500))
def test_random_pods_are_refused_as_by_an_api_server_and_have_its_defaults(oracle: Oracle, first: int) -> None:
    documents = [pod(Dice(number), f"p{number}") for number in range(first, first + 500)]
    assert_agreed(oracle, documents)
    for document, tried in zip(documents, oracle.ask({"nodes": [], "try": documents}).tried, strict=True):
        if tried.pod is not None:
            mine, theirs = pod_from_json(with_pod_defaults(document)), pod_from_json(tried.pod)
            assert _defaulted(mine) == _defaulted(theirs), document
            assert kube_qos(mine) == tried.pod["status"]["qosClass"], document


def _defaulted(pod: Pod) -> list[object]:
    """What has defaults: amounts of the pod and its containers, and ports."""
    spec = pod.spec
    of_containers = [(_amounts(each.resources), _ports(each)) for each in (*spec.containers, *spec.init_containers)]
    return [_amounts(spec.resources or ResourceRequirements()), of_containers]


def _amounts(resources: ResourceRequirements) -> list[dict[str, int]]:
    listed = (resources.requests, resources.limits)
    return [{name: quantity_from_json(value).nano for name, value in each.items()} for each in listed]


def _ports(container: Container) -> list[tuple[int, int, str]]:
    return [(port.container_port, port.host_port, port.protocol) for port in container.ports]
