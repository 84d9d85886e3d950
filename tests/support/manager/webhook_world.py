"""A whole manager on loopback with its webhooks over TLS, and somebody who asks them as an API server does; for tests.

async with webhook_world(tmp_path) as world:
    await world.apply(PROFILE)
    answer = await world.review("/mutate-pod", pod)
"""

import base64
import contextlib
import json
import ssl
import uuid
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import httpx
import jsonpatch
from koord_manager.compose import assemble
from koord_manager.settings import ManagerSettings
from koord_manager.shell.gateway.api import KubernetesApi
from koord_manager.shell.webhooks.certificates import Bundle, WebhookEnvironment, make_bundle
from koord_manager.shell.webhooks.keeper import write_files
from koord_manager.shell.webhooks.server import Webhooks
from koordcore.bus.factory import Bus, memory_bus
from koordcore.ports.leadership import Leadership
from koordcore.service.leader.lease import SoleLeader
from koordcore.service.run import Shell
from support.running_service import running_service
from support.until import DEADLINE_SECONDS

Json = dict[str, Any]
ALL_GATES = (
    "--feature-gates=NodeMutatingWebhook=true,NodeValidatingWebhook=true,ConfigMapValidatingWebhook=true,"
    "ReservationMutatingWebhook=true,MultiQuotaTree=true,ValidatePodDeviceResource=true,"
    "EnablePodEnhancedValidator=true,BindingAdmissionWebhook=true"
)
_RESOURCES = {
    "pod": ("", "v1", "pods", ""),
    "pod-binding": ("", "v1", "pods", "binding"),
    "node-status": ("", "v1", "nodes", "status"),
    "node": ("", "v1", "nodes", ""),
    "configmap": ("", "v1", "configmaps", ""),
    "reservation": ("scheduling.koordinator.sh", "v1alpha1", "reservations", ""),
    "elasticquota": ("scheduling.sigs.k8s.io", "v1alpha1", "elasticquotas", ""),
}


@dataclass(frozen=True, kw_only=True)
class Reviewed:
    """An answer: the object after the patch, and what was said."""

    allowed: bool
    code: int
    message: str
    object: Json | None
    patch: list[Json]


@dataclass(kw_only=True)
class WebhookWorld:
    """The manager: its HTTP door, its webhooks, and a client for each."""

    shell: Shell[ManagerSettings]
    bus: Bus
    webhooks: Webhooks
    directory: Path
    plain: httpx.AsyncClient
    tls: httpx.AsyncClient

    async def apply(self, *documents: Json | str) -> list[Json]:
        """Applies documents (YAML text or JSON); the result of each."""
        results: list[Json] = []
        for document in documents:
            body = document if isinstance(document, str) else json.dumps(document)
            results += (await self.plain.post("/v1/apply", content=body)).json()["results"]
        return results

    async def review(
        self,
        path: str,
        document: Json | None,
        *,
        operation: str = "CREATE",
        old: Json | None = None,
        namespace: str = "default",
        version: str = "v1",
        **more: Any,
    ) -> Reviewed:
        """Asks one webhook about an object, applies the patch of the answer."""
        body = review_body(path, document, operation=operation, old=old, namespace=namespace, version=version, **more)
        answer = await self.tls.post(path, content=json.dumps(body))
        answer.raise_for_status()
        review = answer.json()
        assert review["apiVersion"] == body["apiVersion"]
        return reviewed(review["response"], body["request"]["uid"], document)


def review_body(
    path: str,
    document: object,
    *,
    operation: str = "CREATE",
    old: object = None,
    namespace: str = "default",
    version: str = "v1",
    **more: Any,
) -> Json:
    """An AdmissionReview for a path."""
    kind = path.removeprefix("/mutate-").removeprefix("/validate-").rpartition("v1alpha1-")[2]
    group, api_version, resource, subresource = _RESOURCES[kind]
    request = {
        "uid": str(uuid.uuid4()),
        "operation": operation,
        "resource": {"group": group, "version": api_version, "resource": resource},
        "subResource": subresource,
        "namespace": namespace,
        "userInfo": {"username": "tester"},
        "object": document,
        "oldObject": old,
        **more,
    }
    return {"apiVersion": f"admission.k8s.io/{version}", "kind": "AdmissionReview", "request": request}


def reviewed(response: Json, uid: str, document: Json | None) -> Reviewed:
    """A decoded response, with its patch applied to the document."""
    assert response["uid"] == uid
    patch: list[Json] = json.loads(base64.b64decode(response["patch"])) if response.get("patch") else []
    patched = cast("Json | None", jsonpatch.apply_patch(document, patch)) if patch else document
    status: Json = response.get("status") or {}
    return Reviewed(
        allowed=response["allowed"],
        code=status.get("code", 200),
        message=status.get("message", ""),
        object=patched,
        patch=patch,
    )


def tls_client(url: str, ca_file: Path, server_name: str) -> httpx.AsyncClient:
    """A client that trusts this CA alone and expects the webhook's name."""
    context = ssl.create_default_context(cafile=ca_file)
    transport = httpx.AsyncHTTPTransport(verify=context, retries=0, limits=httpx.Limits(max_connections=64))
    return httpx.AsyncClient(
        base_url=url, transport=transport, headers={"host": server_name}, trust_env=False, timeout=DEADLINE_SECONDS
    )


@lru_cache(maxsize=1)
def made_once() -> Bundle:
    """A valid bundle for the default name: making keys takes longer than most tests."""
    return make_bundle(WebhookEnvironment().dns_name, datetime.now(UTC))


@contextlib.asynccontextmanager
async def webhook_world(
    directory: Path,
    *flags: str,
    api: KubernetesApi | None = None,
    bus: Bus | None = None,
    leadership: Leadership | None = None,
    writer: str = "fs",
    certificate: bool = True,
) -> AsyncGenerator[WebhookWorld]:
    """A manager whose certificates are kept in `directory`; more flags are added to the command line.

    certificate   there is a valid one already
    """
    if certificate:
        write_files(directory, made_once())
    used = bus or memory_bus()
    added: list[Webhooks] = []
    environment = WebhookEnvironment(port=0, directory=directory, writer="secret" if writer == "secret" else "fs")

    async def compose(shell: Shell[ManagerSettings]) -> None:
        webhooks = assemble(shell, used, leadership or SoleLeader("test"), api, webhooks=environment)
        assert webhooks is not None
        added.append(webhooks)

    words: Sequence[str] = ("--log-level=error", "--webhooks=on", "--webhook-address=127.0.0.1", *flags)
    async with running_service(ManagerSettings.load(words, {}), compose) as shell:
        url = f"https://localhost:{added[0].server.port}"
        async with (
            httpx.AsyncClient(base_url=shell.http.url, trust_env=False, timeout=DEADLINE_SECONDS) as plain,
            tls_client(url, directory / "current" / "ca-cert.pem", environment.dns_name) as tls,
        ):
            yield WebhookWorld(shell=shell, bus=used, webhooks=added[0], directory=directory, plain=plain, tls=tls)
