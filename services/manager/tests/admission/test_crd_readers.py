"""Definitions and readers agree: what a definition accepts is read, and what is written is accepted by it."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from koord_manager.domain.admission.context.profiles import read_profile, read_quota_profile
from koord_manager.domain.admission.context.quota import read_quota
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.quotas.quota_objects import default_quota
from koord_manager.domain.admission.request import Operation
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.documents.apply import decide_apply
from koord_manager.domain.gateway.node_metric import report_of
from koordcore.events.objects import CustomObjectObserved
from koordcore.protocol.crd import Accepted, ResourceVersion, admit, find_resource, resource_versions
from koordcore.protocol.hardware.devices import device_from
from koordcore.protocol.hardware.node_topology import topology_from
from koordcore.protocol.manifests import InvalidManifest, shape_manifest
from koordcore.protocol.objects import object_from_json
from koordcore.protocol.scheduling_objects import ElasticQuota
from koordcore.values import codec
from support.crd_documents import documents
from support.depth import examples

pytestmark = pytest.mark.slow

Json = dict[str, Any]
RESOURCES = [resource for resource in resource_versions() if resource.served]
READERS: dict[str, Callable[[Json], object]] = {
    "ClusterColocationProfile": read_profile,
    "ElasticQuota": read_quota,
    "ElasticQuotaProfile": read_quota_profile,
    "NodeResourceTopology": topology_from,
    "Device": device_from,
    "NodeMetric": lambda document: report_of(document, lambda namespace, name: f"{namespace}/{name}"),
}
SLOW = settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


def resource_of(kind: str) -> ResourceVersion:
    found = find_resource(next(resource.api_version for resource in RESOURCES if resource.kind == kind), kind)
    assert found is not None
    return found


VALID_PARTS: Json = {
    "template": {"metadata": {}, "spec": {"containers": [{"name": "main"}]}},
    "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
    "ttl": "1h",
    "taints": [],
}
"""Fields of a Reservation that have rules beyond its schema."""


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: f"{resource.kind}.{resource.version}")
@SLOW
@given(data=st.data())
@pytest.mark.deep
def test_what_a_schema_describes_is_accepted_and_storing_it_again_changes_nothing(
    resource: ResourceVersion, data: st.DataObject
) -> None:
    document = data.draw(documents(resource))

    once = admit(document)
    assert isinstance(once, Accepted), once
    again = admit(once.object)

    assert isinstance(again, Accepted), again
    assert again.object == once.object


@pytest.mark.parametrize("kind", sorted(READERS))
@SLOW
@given(data=st.data())
def test_what_a_definition_accepts_is_read(kind: str, data: st.DataObject) -> None:
    document = data.draw(documents(resource_of(kind)))
    stored = admit(document)
    assert isinstance(stored, Accepted)

    READERS[kind](codec.decode(codec.encode(stored.object), Json))


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: f"{resource.kind}.{resource.version}")
@SLOW
@given(data=st.data())
def test_an_accepted_object_is_applied_as_its_definition_stores_it_and_once_only(
    resource: ResourceVersion, data: st.DataObject
) -> None:
    document = data.draw(documents(resource))
    # rules beyond the schema (a quota's max and min, a Reservation's template) are tested elsewhere
    if resource.kind == "Reservation":
        spec: Json = document.get("spec") or {}
        document = {**document, "spec": {**spec, **VALID_PARTS}}
    options = Options(gates={"ElasticValidatingWebhook": False, "ElasticMutatingWebhook": False})
    view = ManagerView()

    applied = decide_apply(view, shape_manifest(document), new_uid="u", now="2026-01-01T00:00:00Z", options=options)

    assert applied.action == "created"
    event = applied.drafts[0].event
    assert isinstance(event, CustomObjectObserved)
    again = admit(event.object)
    assert isinstance(again, Accepted)
    without = {name: value for name, value in again.object.items() if name != "metadata"}
    assert without == {name: value for name, value in event.object.items() if name != "metadata"}


@SLOW
@given(data=st.data())
def test_quotas_that_we_write_are_accepted(data: st.DataObject) -> None:
    document = data.draw(documents(resource_of("ElasticQuota")))
    typed = object_from_json(document, ElasticQuota)
    written = {"apiVersion": document["apiVersion"], "kind": "ElasticQuota", **codec.to_builtins(typed)}
    defaulted, _ = default_quota(Operation.CREATE, document, ManagerView().admission.quotas)

    for ours in (written, defaulted):
        decision = admit(codec.decode(codec.encode(ours), Json))
        assert isinstance(decision, Accepted), decision


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"spec": {"qosClass": "GOLD"}}, "spec.qosClass"),
        ({"spec": {"koordinatorPriority": 1 << 40}}, "spec.koordinatorPriority"),
        ({"spec": {"selector": {"matchExpressions": [{"key": "a"}]}}}, "spec.selector.matchExpressions[0].operator"),
        ({"spec": {"labels": {"a": 1}}}, "spec.labels.a"),
        ({"metadata": {"name": "Upper"}}, "metadata.name"),
    ],
)
def test_what_a_definition_refuses_is_refused_with_its_field(change: Json, field: str) -> None:
    profile = {"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile"}
    document = {**profile, "metadata": {"name": "p"}, **change}

    with pytest.raises(InvalidManifest) as caught:
        decide_apply(ManagerView(), shape_manifest(document), new_uid="u", now="2026-01-01T00:00:00Z")

    assert [violation.path for violation in caught.value.violations] == [field]
