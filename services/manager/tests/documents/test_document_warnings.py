"""Fields that no kind has are warned about, with what was meant; documented ones never are."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koord_manager.domain.admission.options import Options
from koord_manager.domain.documents.warnings import MOST, document_warnings
from koord_manager.shell.export_fields import exported
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.protocol import keys, kubernetes_fields
from koordcore.protocol.crd import accepted_kinds
from koordcore.protocol.kubernetes_fields import field_types
from koordcore.protocol.manifests import KINDS, read_documents
from koordctl.objects.lint import Linter
from support.manager.loops import Manager, running

EXAMPLES = Path(__file__).parents[4] / "examples"
DATA = Path(kubernetes_fields.__file__).with_suffix(".json")


def warned(api_version: str, kind: str, **fields: Any) -> list[str]:
    return list(document_warnings({"apiVersion": api_version, "kind": kind, **fields}))


def test_the_names_of_fields_are_those_of_the_kubernetes_client() -> None:
    assert DATA.read_text(encoding="utf-8") == exported()


MISSPELT: list[tuple[str, str, dict[str, Any], str, str]] = [
    ("v1", "Pod", {"spec": {"nodeSelecter": {}}}, "spec.nodeSelecter", "ignored; did you mean nodeSelector?"),
    ("v1", "Pod", {"spec": {"nodeselector": {}}}, "spec.nodeselector", "ignored; did you mean nodeSelector?"),
    ("v1", "Pod", {"metadata": {"lables": {}}}, "metadata.lables", "ignored; did you mean labels?"),
    ("v1", "Pod", {"spec": {"containers": [{}, {"resource": {}}]}}, "spec.containers[1].resource", "resources?"),
    ("v1", "Pod", {"spec": {"zzz": 1}}, "spec.zzz", "ignored"),
    ("v1", "Node", {"status": {"alocatable": {}}}, "status.alocatable", "ignored; did you mean allocatable?"),
    ("v1", "ConfigMap", {"dta": {}}, "dta", "ignored; did you mean data?"),
    ("scheduling.k8s.io/v1", "PriorityClass", {"vale": 1}, "vale", "ignored; did you mean value?"),
    (
        "apps/v1",
        "Deployment",
        {"spec": {"template": {"spec": {"tolerations": [{"efect": "x"}]}}}},
        "spec.template.spec.tolerations[0].efect",
        "ignored; did you mean effect?",
    ),
    ("policy/v1", "PodDisruptionBudget", {"spec": {"minAvailble": 1}}, "spec.minAvailble", "minAvailable?"),
    (
        "scheduling.sigs.k8s.io/v1alpha1",
        "ElasticQuota",
        {"spec": {"mx": {}}},
        "spec.mx",
        "dropped; did you mean max?",
    ),
    ("scheduling.sigs.k8s.io/v1alpha1", "ElasticQuota", {"metadata": {"lables": {}}}, "metadata.lables", "labels?"),
    (
        "config.koordinator.sh/v1alpha1",
        "ClusterColocationProfile",
        {"spec": {"patch": {"spec": {"$patch": "merge", "nodeNme": "a"}}}},
        "spec.patch.spec.nodeNme",
        "ignored; did you mean nodeName?",
    ),
    (
        "scheduling.koordinator.sh/v1alpha1",
        "Reservation",
        {"spec": {"template": {"spec": {"containrs": []}}}},
        "spec.template.spec.containrs",
        "ignored; did you mean containers?",
    ),
]


@pytest.mark.parametrize(("api_version", "kind", "fields", "place", "end"), MISSPELT)
def test_an_unknown_field_is_told_with_its_place_and_what_was_meant(
    api_version: str, kind: str, fields: dict[str, Any], place: str, end: str
) -> None:
    (warning,) = warned(api_version, kind, **fields)

    assert warning.startswith(f"{place}: unknown field, it is ")
    assert warning.endswith(end)


@pytest.mark.parametrize("kind", [*(kind for _, kind in KINDS), "Service", "StatefulSet"])
def test_every_documented_field_of_a_kind_is_known(kind: str) -> None:
    versions = {name: version for version, name in KINDS} | {each.kind: each.api_version for each in accepted_kinds()}

    assert warned(versions[kind], kind, **_every_field(kind)) == []


def _every_field(name: str) -> dict[str, Any]:
    return {
        field: [_every_field(nested)] if nested else "x"
        for field, nested in field_types()[name].items()
        if field not in ("apiVersion", "kind")
    }


def test_the_examples_have_no_unknown_field() -> None:
    files = sorted(EXAMPLES.rglob("*.yaml"))
    documents = [document for file in files for document in read_documents(file.read_bytes())]

    assert [warning for document in documents for warning in document_warnings(document)] == []


@given(
    st.recursive(
        st.none() | st.text() | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["metadata", "spec", "template", "x"]), inner),
    ),
    st.sampled_from([("v1", "Pod"), ("scheduling.koordinator.sh/v1alpha1", "Reservation"), ("apps/v1", "Job")]),
)
def test_a_document_of_any_shape_is_looked_at(value: object, kind: tuple[str, str]) -> None:
    assert document_warnings(value) == ()
    for warning in warned(*kind, metadata=value, spec=value):
        assert ": unknown field, it is " in warning


def test_a_document_is_told_no_more_than_one_reads_and_long_names_are_cut() -> None:
    many = warned("v1", "Pod", spec={f"unknown{number}": 1 for number in range(1000)})
    (long,) = warned("v1", "Pod", spec={"n" * 100_000: 1})

    assert len(many) == MOST
    assert len(long) < 200


def test_an_annotation_of_json_is_no_field() -> None:
    applied = json.dumps({"spec": {"nodeSelecter": {}}})

    assert warned("v1", "Pod", metadata={"annotations": {"a": applied}, "labels": {"spce": "x"}}) == []


CONFIG: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
}
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"koordinator.sh/qosClass": "BestEffort"}},
    "spec": {"nodeSelecter": {}, "containers": [{"name": "main", "image": "nginx"}]},
}


@pytest.mark.parametrize(
    ("document", "actions"),
    [
        (POD, ["created", "unchanged"]),
        ({**POD, "spec": {**POD["spec"], "containers": 3}}, ["refused", "refused"]),
        ({**POD, "spec": {**POD["spec"], "containers": []}}, ["refused", "refused"]),
        ({**CONFIG, "data": {"cpu-burst-config": '{"clusterStrategy": {"polcy": "x"}}'}}, ["created", "unchanged"]),
        (
            {**CONFIG, "data": {"cpu-burst-config": '{"clusterStrategy": {"polcy": 1}, "a": []}'}},
            ["created", "unchanged"],
        ),
    ],
)
async def test_apply_warns_of_what_lint_warns_of_taken_or_refused_each_time(
    document: dict[str, Any], actions: list[str]
) -> None:
    manager = Manager(MemoryLog())
    async with running(manager):
        results = [(await manager.apply(json.dumps(document)))[0] for _ in actions]
    (finding,) = Linter(Options()).judge([document])

    assert [result.action for result in results] == actions
    assert finding.warnings
    assert [tuple(result.warnings) for result in results] == [finding.warnings] * len(actions)


async def test_apply_tells_every_fault_of_a_configuration_as_lint_does() -> None:
    threshold = {"clusterStrategy": {"cpuSuppressThresholdPercent": 165, "memoryEvictThresholdPercent": -1}}
    data = {
        "colocation-config": json.dumps({"cpuReclaimThresholdPercent": -1, "degradeTimeMinutes": "soon"}),
        "resource-threshold-config": json.dumps(threshold),
    }
    manager = Manager(MemoryLog())
    async with running(manager):
        (result,) = await manager.apply(json.dumps({**CONFIG, "data": data}))
    (finding,) = Linter(Options()).judge([{**CONFIG, "data": data}])

    assert result.action == "refused"
    assert [error.field for error in result.errors] == [violation.path for violation in finding.violations]
    assert len(result.errors) == 4


@pytest.mark.parametrize(
    ("spec", "warnings"),
    [
        ({"ttl": "5m", "mode": "EvictDirectly"}, []),
        ({"ttl": "5 minutes"}, ["spec.ttl: should be", "'5 minutes'; the job fails"]),
        (
            {"mode": "EvictThenMigrate"},
            ["spec.mode: should be absent or one of Res", "the job fails"],
        ),
    ],
)
def test_a_migration_job_that_cannot_work_is_told(spec: dict[str, Any], warnings: list[str]) -> None:
    document = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "PodMigrationJob",
        "metadata": {"name": "j"},
    }
    found = document_warnings({**document, "spec": {"podRef": {"namespace": "d", "name": "p"}, **spec}})
    assert len(found) == bool(warnings)
    assert all(part in found[0] for part in warnings)


def test_a_gpu_partition_that_gives_another_number_of_gpus_is_warned_about() -> None:
    table = {keys.GPU_PARTITIONS: '{"2":[{"minors":[0,1,2]},{"minors":[4,5]}]}'}
    (warning,) = warned("scheduling.koordinator.sh/v1alpha1", "Device", metadata={"annotations": table})
    place = f"metadata.annotations[{keys.GPU_PARTITIONS}].2[0].minors"
    assert warning == f"{place}: must be 2 different minors, got [0, 1, 2]; the partition is ignored"
    (warning,) = warned(
        "scheduling.koordinator.sh/v1alpha1", "Device", metadata={"annotations": {keys.GPU_PARTITIONS: "{"}}
    )
    assert warning.endswith("the table is ignored")
