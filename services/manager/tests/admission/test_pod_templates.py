"""Of a pod template inside of a custom resource the log keeps what it keeps of pods, at every door."""

import json
import random
import re
from typing import Any

import pytest
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.recorded_object import TEMPLATES, with_recorded_templates
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.documents.apply import decide_apply
from koord_manager.domain.gateway.genesis import genesis_drafts
from koord_manager.domain.gateway.mirror import Seen, cleaned, next_draft
from koord_manager.domain.gateway.resources import Mirrored, mirrored_resources
from koordcore.events.envelope import Draft
from koordcore.events.objects import CustomObjectObserved
from koordcore.protocol.crd import accepted_kinds
from koordcore.protocol.crd.catalogue import Schema, resource_versions
from koordcore.protocol.manifests import InvalidManifest, shape_manifest
from koordcore.values import codec
from support.depth import repeats
from support.histories.recording import stored
from support.manager.hostile_objects import as_object
from support.mutations import mutated

Json = dict[str, Any]
SECRET = "s3cr3t"
NOW = "2026-01-01T00:00:00Z"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
RESOURCES = {item.plural: item for item in mirrored_resources(slo_config=("a", "b"), take_node_metrics=False)}
OPEN_BY_DESIGN = {
    "clustercolocationprofiles": {"spec.patch"},  # it is put on pods as it is written
    "nodemetrics": {"status.podsMetric.extensions"},  # ours
    "nodeslos": {"spec.extensions"},  # ours
}
EVERY_STEP = Options(gates={"ReservationMutatingWebhook": True})
PROBE: Json = {"httpGet": {"port": 80, "httpHeaders": [{"name": "Authorization", "value": SECRET}]}}
TEMPLATE: Json = {
    "metadata": {"labels": {"app": "a"}, "annotations": {LAST_APPLIED: SECRET}},
    "spec": {
        "schedulerName": "koord-scheduler",
        "tolerations": [{"operator": "Equal", "key": "k"}],
        "containers": [
            {
                "name": "main",
                "image": "busybox",
                "env": [{"name": "TOKEN", "value": SECRET}],
                "command": ["sh", "-c", SECRET],
                "args": [SECRET],
                "livenessProbe": PROBE,
                "lifecycle": {"preStop": PROBE},
                "resources": {"requests": {"cpu": "500m"}, "limits": None},
            }
        ],
        "initContainers": [{"name": "init", "env": [{"name": "TOKEN", "value": SECRET}]}],
        "volumes": [
            {"name": "csi", "csi": {"driver": "d", "volumeAttributes": {"password": SECRET}}},
            {"name": "claim", "persistentVolumeClaim": {"claimName": "data"}},
        ],
    },
}


def custom(plural: str, template: Json = TEMPLATE) -> Json:
    kind = next(found for found in accepted_kinds() if found.plural == plural and found.stored)
    owners = [{"object": {"name": "web", "namespace": "default"}}]
    spec: Json = {
        "reservations": {"template": template, "owners": owners, "ttl": "1h"},
        "podmigrationjobs": {
            "podRef": {"namespace": "default", "name": "web"},
            "reservationOptions": {"template": {"spec": {"template": template, "owners": owners}}},
        },
        "scheduleexplanations": {"questionObjectTemplate": template},
    }[plural]
    metadata: Json = {"name": "r", "annotations": {LAST_APPLIED: json.dumps({"password": SECRET})}}
    if kind.scope == "Namespaced":
        metadata["namespace"] = "default"
    document = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
    return json.loads(json.dumps(document))


class Cluster:
    """A view that folds what is decided, and the last of it as it lies in the log."""

    def __init__(self) -> None:
        self.view = ManagerView()
        self.bodies = b""
        self.last: Json = {}

    def fold(self, draft: Draft) -> None:
        event = stored(self.view.state.position + 1, draft)
        self.view.fold(event)
        self.bodies += event.body
        assert isinstance(draft.event, CustomObjectObserved)
        self.last = draft.event.object

    def apply(self, document: Json) -> str:
        applied = decide_apply(self.view, shape_manifest(document), new_uid="u", now=NOW, options=EVERY_STEP)
        for draft in applied.drafts:
            self.fold(draft)
        return applied.action

    def see(self, resource: Mirrored, document: Json) -> bool:
        draft = next_draft(self.view, Seen(resource, cleaned(resource, document)))
        if draft is not None:
            self.fold(draft)
        return draft is not None


def open_places(schema: Schema, path: str = "") -> set[str]:
    if schema.preserve_unknown:
        return {path}
    below = [(name, child) for name, child in schema.properties.items() if name != "metadata"]
    found = {place for name, child in below for place in open_places(child, f"{path}.{name}".lstrip("."))}
    return found | (open_places(schema.items, path) if schema.items is not None else set())


def test_every_place_of_a_schema_that_takes_anything_is_a_template_or_known_to_hold_none() -> None:
    for kind in resource_versions():
        expected = {".".join(TEMPLATES[kind.plural][0])} if kind.plural in TEMPLATES else set[str]()
        assert open_places(kind.schema) == expected | OPEN_BY_DESIGN.get(kind.plural, set()), kind.plural


@pytest.mark.parametrize("plural", list(TEMPLATES))
def test_nothing_secret_of_a_template_that_is_mirrored_enters_the_log_and_it_is_written_once(plural: str) -> None:
    cluster, document = Cluster(), {**custom(plural), "status": {"phase": "Available"}}
    document["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    before = json.dumps(document)

    assert cluster.see(RESOURCES[plural], document)
    assert SECRET not in cluster.bodies.decode()
    assert b"500m" in cluster.bodies
    assert b"koord-scheduler" in cluster.bodies
    assert cluster.last["status"] == {"phase": "Available"}
    assert not cluster.see(RESOURCES[plural], document)
    document["metadata"]["resourceVersion"] = "8"
    assert not cluster.see(RESOURCES[plural], document)
    document["metadata"]["resourceVersion"] = "7"
    assert json.dumps(document) == before


@pytest.mark.parametrize("plural", list(TEMPLATES))
def test_a_log_that_begins_with_what_exists_begins_without_secrets(plural: str) -> None:
    resource = RESOURCES[plural]
    drafts = list(genesis_drafts([Seen(resource, cleaned(resource, custom(plural)))], cluster_epoch=1, now=NOW))

    assert b"500m" in b"".join(stored(number, draft).body for number, draft in enumerate(drafts, 1))
    assert all(SECRET not in stored(number, draft).body.decode() for number, draft in enumerate(drafts, 1))


@pytest.mark.parametrize("plural", list(TEMPLATES))
def test_nothing_secret_of_a_template_that_is_applied_enters_the_log_and_again_it_is_unchanged(plural: str) -> None:
    cluster = Cluster()

    assert cluster.apply(custom(plural)) == "created"
    assert SECRET not in cluster.bodies.decode()
    assert b"500m" in cluster.bodies
    assert cluster.apply(custom(plural)) == "unchanged"
    assert cluster.apply(json.loads(json.dumps(cluster.last))) == "unchanged"


def test_a_changed_request_of_a_template_is_configured_and_a_changed_environment_is_not_seen() -> None:
    cluster = Cluster()
    cluster.apply(custom("reservations"))
    text = json.dumps(custom("reservations"))

    assert cluster.apply(json.loads(text.replace(SECRET, "another"))) == "unchanged"
    assert cluster.apply(json.loads(text.replace("500m", "600m"))) == "configured"
    (container,) = cluster.last["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "600m"}}
    assert cluster.apply(json.loads(text.replace("500m", "600m"))) == "unchanged"


def test_an_environment_that_a_profile_puts_into_a_template_does_not_enter_the_log() -> None:
    cluster = Cluster()
    patch = {
        "spec": {"template": {"spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "inj3ct3d"}]}]}}}
    }
    cluster.apply(
        {
            "apiVersion": "config.koordinator.sh/v1alpha1",
            "kind": "ClusterColocationProfile",
            "metadata": {"name": "p"},
            "spec": {"selector": {"matchLabels": {"class": "batch"}}, "labels": {"by": "profile"}, "patch": patch},
        }
    )

    document = custom("reservations")
    document["metadata"]["labels"] = {"class": "batch"}
    assert cluster.apply(document) == "created"
    assert cluster.last["metadata"]["labels"] == {"class": "batch", "by": "profile"}
    assert "inj3ct3d" not in json.dumps(cluster.last)


def test_an_object_of_an_older_log_that_holds_secrets_is_replaced_by_what_is_kept_of_it() -> None:
    cluster, document = Cluster(), custom("reservations")
    resource = RESOURCES["reservations"]
    draft = next_draft(cluster.view, Seen(resource, cleaned(resource, document)))
    assert draft is not None
    cluster.fold(Draft(draft.ref, CustomObjectObserved(object=document), 0))

    assert cluster.see(resource, document)
    assert SECRET not in json.dumps(cluster.last)
    assert not cluster.see(resource, document)


def test_of_a_template_of_another_shape_nothing_is_kept_and_apply_says_so() -> None:
    document = custom("scheduleexplanations", {"spec": {"containers": SECRET}})

    applied = decide_apply(ManagerView(), shape_manifest(document), new_uid="u", now=NOW, options=EVERY_STEP)
    assert applied.action == "created"
    (warning,) = applied.warnings
    assert warning.endswith(f".containers: must be array, got str, got '{SECRET}': nothing of this template is kept")
    assert SECRET not in stored(1, applied.drafts[0]).body.decode()
    cluster = Cluster()
    document = custom("reservations", {"spec": {"containers": SECRET}})
    cluster.see(RESOURCES["reservations"], document)
    assert cluster.last["spec"]["template"] == {"metadata": {}, "spec": {}}


def test_apply_refuses_a_reservation_whose_template_has_another_shape() -> None:
    document = custom("reservations", {"spec": {"containers": SECRET}})

    with pytest.raises(InvalidManifest, match=re.escape("spec.template.spec.containers: must be array, got str")):
        decide_apply(ManagerView(), shape_manifest(document), new_uid="u", now=NOW, options=EVERY_STEP)


@pytest.mark.fuzz
@pytest.mark.parametrize("plural", list(TEMPLATES))
def test_whatever_is_written_in_a_template_keeping_it_twice_is_keeping_it_once(plural: str) -> None:
    rng, kept_at_all = random.Random(20261122), 0
    document = custom(plural)
    for _ in range(repeats(3000)):
        template = as_object(mutated(rng, {"metadata": {"labels": {"app": "a"}}, "spec": TEMPLATE["spec"]}))
        if template is None:
            continue
        document = custom(plural, template)

        kept = with_recorded_templates(plural, document)

        assert with_recorded_templates(plural, kept.document) == (kept.document, None)
        text = codec.encode(kept.document["spec"]).decode()
        assert SECRET not in text
        kept_at_all += kept.fault is None
    assert kept_at_all > repeats(1000)
