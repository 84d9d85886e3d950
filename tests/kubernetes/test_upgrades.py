"""Stored objects outlive an upgrade of their definition, and lists outlive the compaction of etcd."""

import json
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from koord_manager.domain.gateway.mirror import name_of
from koord_manager.domain.gateway.resources import Intake, Mirrored
from koord_manager.shell.gateway.api import connect_api
from koord_manager.shell.gateway.reading import RequestRefused, list_pages
from koordcore.protocol.crd.catalogue import definition_texts
from koordctl.stack.kubernetes.programs import admin_kubeconfig
from support.koord_command import KoordCommand
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.installation import Installation
from support.kubernetes.kubelets import add_nodes, node_document
from support.until import DEADLINE_SECONDS, until_blocking

pytestmark = [pytest.mark.kubernetes]

Json = dict[str, Any]
RESERVATIONS = "reservations.scheduling.koordinator.sh"


def definition(name: str) -> Json:
    """Return one of our definitions."""
    found = (yaml.safe_load(text) for text in definition_texts().values())
    return next(item for item in found if item["metadata"]["name"] == name)


def open_definition(name: str) -> Json:
    """Return a definition as an older installation may have it: every field is allowed, and there is no column."""
    document = definition(name)
    for version in document["spec"]["versions"]:
        version.pop("additionalPrinterColumns", None)
        version["schema"] = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return document


async def test_objects_of_an_older_definition_are_read_changed_and_mirrored(
    plane: ControlPlane, installed: Installation
) -> None:
    add_nodes(plane, node_document("upgraded-node", cpu=4))
    plane.apply(open_definition(RESERVATIONS))
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
    spec = {
        "owners": [{"labelSelector": {"matchLabels": {"app": "kept"}}}],
        "ttl": "24h",
        "fieldOfThePast": True,
        "template": {
            "spec": {"schedulerName": "koord-scheduler", "nodeName": "upgraded-node", "containers": [container]}
        },
    }
    document = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation", "spec": spec}
    kept = yaml.safe_dump({**document, "metadata": {"name": "kept"}})
    # The API server refuses the old field until it has taken the old definition.
    until_blocking(lambda: plane.ask("apply", "-f", "-", stdin=kept).code == 0, "the old definition is in force")
    uid = plane.get("reservation", "kept")["metadata"]["uid"]

    plane.apply(definition(RESERVATIONS))
    plane.kubectl("wait", "--for=condition=Established", "crd", RESERVATIONS, "--timeout=60s")
    await installed.start_both()

    def phase() -> object:
        return plane.get("reservation", "kept").get("status", {}).get("phase")

    await installed.until(lambda: phase() == "Available", "the reservation is placed")
    found = plane.get("reservation", "kept")
    assert found["metadata"]["uid"] == uid
    assert "fieldOfThePast" not in found["spec"]
    plane.kubectl("patch", "reservation", "kept", "--type=merge", "-p", json.dumps({"spec": {"ttl": "48h"}}))
    assert plane.get("reservation", "kept")["spec"]["ttl"] == "48h"
    plane.kubectl("delete", "reservation", "kept")
    plane.kubectl("delete", "node", "upgraded-node")


def test_doctor_names_a_definition_that_an_upgrade_has_left_behind(plane: ControlPlane, tmp_path: Path) -> None:
    old = definition(RESERVATIONS)
    del old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["ttl"]

    def about_definitions() -> dict[str, str]:
        words = ("doctor", "-o", "json", "--kubeconfig", str(admin_kubeconfig(plane.directory)))
        findings: list[dict[str, str]] = json.loads(KoordCommand(tmp_path).run(*words, status=1))
        return {each["check"]: each["told"] for each in findings if each["check"].startswith("CRD")}

    try:
        plane.apply(old)
        assert about_definitions() == {
            f"CRD {RESERVATIONS}": "is of an older version: it lacks v1alpha1.spec.ttl",
        }
    finally:
        plane.apply(definition(RESERVATIONS))
    assert set(about_definitions()) == {"CRDs"}


def compact(plane: ControlPlane) -> None:
    """Let etcd forget every version but the last, as the API server does every five minutes."""
    tls = plane.tls
    context = ssl.create_default_context(cafile=tls.ca)
    context.load_cert_chain(tls.client_certificate, tls.client_key)
    url = f"https://127.0.0.1:{plane.files.ports['etcd']}/v3"
    with httpx.Client(verify=context, trust_env=False, timeout=DEADLINE_SECONDS) as client:
        revision = client.post(f"{url}/kv/range", json={"key": "AA=="}).json()["header"]["revision"]
        client.post(f"{url}/kv/compaction", json={"revision": revision, "physical": True}).raise_for_status()


def event(number: int) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"listed-{number}", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "none"},
    }


async def test_a_list_whose_history_was_compacted_is_refused_and_begins_anew(plane: ControlPlane) -> None:
    """Events, because the API server answers lists of other kinds from snapshots in its memory."""
    events = Mirrored(
        group="",
        version="v1",
        plural="events",
        kind="Event",
        namespaced=True,
        intake=Intake.CUSTOM,
        namespace="default",
    )
    plane.apply(*(event(number) for number in range(6)))
    api = await connect_api(admin_kubeconfig(plane.directory), qps=0, burst=1)
    try:
        pages = list_pages(api, events, size=2)
        await anext(pages)
        plane.apply(event(6))
        compact(plane)
        with pytest.raises(RequestRefused) as refused:
            await anext(pages)
        anew = [item async for page in list_pages(api, events, size=2) for item in page.objects]
    finally:
        await api.close()

    assert refused.value.answer.status == 410
    assert {f"listed-{number}" for number in range(7)} <= {name_of(item)[1] for item in anew}
    plane.kubectl("delete", "events", "-n", "default", *(f"listed-{number}" for number in range(7)))
