"""Reading manifests: what is taken, what is refused and with which words, what no text can do."""

import json
import random

import pytest
import yaml
from koordcore.protocol.manifests import InvalidManifest, read_documents, read_manifest
from koordcore.protocol.objects import Node, Pod, Workload
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from support.depth import repeats
from support.mutations import damaged, mutated

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"koordinator.sh/qosClass": "LS"}, "annotations": {"a/b": "c"}},
    "spec": {
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
                }
            }
        },
        "containers": [
            {
                "name": "main",
                "image": "nginx",
                "ports": [{"containerPort": 80}],
                "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": 1}},
            }
        ],
    },
}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
    "status": {"capacity": {"cpu": 4, "memory": "8Gi"}},
}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}},
}
BASES = [POD, NODE, DEPLOYMENT]


BILLION_LAUGHS = b"- &a [x, x, x, x, x, x, x, x]\n" + b"".join(
    b"- &%c [*%c, *%c]\n" % (98 + step, 97 + step, 97 + step) for step in range(23)
)


def refusals(document: object) -> list[str]:
    with pytest.raises(InvalidManifest) as caught:
        read_manifest(document)
    return [violation.sentence() for violation in caught.value.violations]


def with_container(**fields: object) -> dict[str, object]:
    spec = POD["spec"]
    assert isinstance(spec, dict)
    return {**POD, "spec": {**spec, "containers": [{"name": "main", "image": "nginx", **fields}]}}


def test_json_and_yaml_give_the_same_objects() -> None:
    from_json = read_documents(json.dumps({"kind": "List", "items": BASES}).encode())
    from_yaml = read_documents(yaml.safe_dump_all(BASES).encode())

    assert from_json == from_yaml == BASES
    assert [type(read_manifest(document).object) for document in from_yaml] == [Pod, Node, Workload]


def test_yaml_dates_stay_text_and_empty_documents_vanish() -> None:
    assert read_documents(b"---\na: 2020-01-01\n---\n---\n") == [{"a": "2020-01-01"}]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (b"a: [1", "YAML or JSON"),
        (b"{1.5: 2}", "a key that is no text"),
        (b"a: .nan", "finite"),
        (b"a: !!binary eA==", "JSON value"),
        (BILLION_LAUGHS, "at most 200000 values of YAML"),
        (b"- " * 70 + b"x", "nested at most 64 deep"),
    ],
)  # fmt: skip
def test_a_text_that_cannot_be_read_is_refused_whole(text: bytes, rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        read_documents(text)


@pytest.mark.parametrize(
    ("text", "place", "found"),
    [
        (b"a: 1\nb: c: d\n", "line 2, column 5", "b: c: d"),
        (b"a: [1\nb: 2\n", "line 2, column 2", "b: 2"),
        (b'{"a": 1,', "line 2, column 1", "the end of the text"),
        (b"a: 1\nb: \xff", "line 2, column 4", "b: \ufffd"),
        (b"a: '\n", "line 2, column 1", "the end of the text"),
        (b"a: 1\n---\nb: !mine 2", "line 3, column 4", "b: !mine 2"),
    ],
)
def test_a_text_that_is_no_yaml_is_refused_with_line_and_column(text: bytes, place: str, found: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_documents(text)
    assert (refused.value.path, refused.value.value) == (place, found)


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (7, "document: must be an object with apiVersion, kind and metadata, got 7"),
        ({"apiVersion": "v1"}, "kind: must be text such as v1 / Pod, got None"),
        ({"apiVersion": "v2", "kind": "Pod"}, "apiVersion, kind: must be one of v1 Pod, "),
        ({**POD, "metadata": {"name": "Web"}}, "metadata.name: must be a DNS subdomain name"),
        (
            {**POD, "metadata": {"name": "w", "labels": {"a": 1}}},
            'metadata.labels[a]: must be a text (quote it: "1"), got 1',
        ),
        (
            {**POD, "metadata": {"name": "w", "labels": {"b": "yes", "a": False}}},
            'metadata.labels[a]: must be a text (quote it: "false"), got False',
        ),
        (
            {**POD, "metadata": {"name": "w", "labels": {"a": [1]}}},
            "metadata.labels: must be str, got array, got {'a': [1]}",
        ),
        (
            with_container(resources={"requests": {"cpu": "1x"}}),
            "spec.containers[0].resources.requests[cpu]: must be a Kubernetes quantity",
        ),
        (
            with_container(resources={"requests": {"cpu": 2}, "limits": {"cpu": 1}}),
            "spec.containers[0].resources.requests[cpu]: must be at most the limit 1, got 2",
        ),
        (
            with_container(resources={"requests": {"nvidia.com/gpu": 1}}),
            "spec.containers[0].resources.limits[nvidia.com/gpu]: must be set as well",
        ),
        (
            with_container(resources={"requests": {"cpu": -1}}),
            "spec.containers[0].resources.requests[cpu]: must be not negative, got -1",
        ),
        ({**POD, "spec": {"containers": []}}, "spec.containers: must be at least one container, got []"),
    ],
)
def test_a_refusal_names_field_rule_and_value(document: object, sentence: str) -> None:
    assert any(found.startswith(sentence) for found in refusals(document)), refusals(document)


def test_every_violation_is_reported() -> None:
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "_"}, "spec": {"containers": [{"name": "A"}]}}

    assert len(refusals(document)) == 3


@pytest.mark.fuzz
def test_no_mutated_document_does_more_than_be_refused() -> None:
    rng = random.Random(20261121)
    accepted = refused = unnamed = 0
    for number in range(repeats(6000)):
        document = mutated(rng, rng.choice(BASES))
        text = json.dumps(document).encode()
        if number % 3 == 0:
            text = damaged(rng, yaml.safe_dump(document).encode())
        try:
            manifests = [read_manifest(found) for found in read_documents(text)]
        except (InvalidInput, InvalidManifest) as error:
            unnamed += not str(error)
            refused += 1
            continue
        for manifest in manifests:
            # what was accepted is canonical: written out and read again it is the same
            assert codec.decode(codec.encode(manifest.object), type(manifest.object)) == manifest.object
            accepted += 1
    assert unnamed == 0
    assert accepted > repeats(100)
    assert refused > repeats(1000)
