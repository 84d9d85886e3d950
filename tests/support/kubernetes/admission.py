# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# API objects are plain JSON here, as they are on the wire.
"""Admission webhooks called as an API server calls them: over TLS, with AdmissionReview v1, by rules and selectors.

source    https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

import base64
import json
import secrets
import ssl
import uuid
from dataclasses import dataclass
from typing import Any, cast

import httpx
import jsonpatch
from support.kubernetes.answers import ApiError
from support.kubernetes.resources import Json, Resource
from support.until import DEADLINE_SECONDS

MUTATING = "MutatingWebhookConfiguration"
VALIDATING = "ValidatingWebhookConfiguration"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRequest:
    """What is asked of the webhooks. `services`: "<ns>/<name>" -> (host, port) of Services, instead of a proxy."""

    resource: Resource
    subresource: str
    operation: str
    namespace: str
    name: str
    object: Json | None
    old: Json | None
    user: str
    dry_run: bool
    namespace_labels: dict[str, str]


def give_name(document: Json) -> str:
    """Makes the name of an object that has none yet, after it was changed and before it is validated."""
    meta = document["metadata"]
    if not meta.get("name"):
        letters = (secrets.choice("bcdfghjklmnpqrstvwxz2456789") for _ in range(5))
        meta["name"] = meta["generateName"][:58] + "".join(letters)
    return meta["name"]


class Webhooks:
    """Calls what the stored configurations name. services: `<ns>/<name>` -> address of the server behind a Service."""

    def __init__(self) -> None:
        self.services: dict[str, tuple[str, int]] = {}
        self.calls: list[tuple[str, str]] = []
        self._clients: dict[str, httpx.AsyncClient] = {}

    async def close(self) -> None:
        """Closes connections."""
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()

    async def admit(self, configurations: list[Json], request: AdmissionRequest) -> Json | None:
        """The object after all mutations. Raises ApiError when a webhook denies, or fails and may not be ignored."""
        document = request.object
        for kind in (MUTATING, VALIDATING):
            if (
                kind == VALIDATING
                and request.operation == "CREATE"
                and document is not None
                and not request.subresource
            ):
                give_name(document)
            for configuration in sorted(
                (item for item in configurations if item["kind"] == kind), key=lambda item: item["metadata"]["name"]
            ):
                for webhook in configuration.get("webhooks", []):
                    if _applies(webhook, request, document):
                        document = await self._call(webhook, request, document, mutates=kind == MUTATING)
        return document

    async def _call(
        self, webhook: Json, request: AdmissionRequest, document: Json | None, *, mutates: bool
    ) -> Json | None:
        name = webhook["name"]
        uid = str(uuid.uuid4())
        self.calls.append((name, f"{request.operation} {request.resource.plural}/{request.name}"))
        try:
            response = await self._ask(webhook, _review(uid, request, document))
            if response.get("uid") != uid:
                raise ValueError(f"response.uid is {response.get('uid')!r}, not that of the request")
            allowed = response["allowed"]
        except (httpx.HTTPError, OSError, ValueError, KeyError, TypeError) as error:
            if webhook.get("failurePolicy", "Fail") == "Ignore":
                return document
            raise ApiError(
                500, f'Internal error occurred: failed calling webhook "{name}": {type(error).__name__}: {error}'
            ) from error
        if not allowed:
            said: Json = response.get("status") or {}
            code = int(said.get("code") or 400)
            raise ApiError(
                code if code >= 400 else 400,
                f'admission webhook "{name}" denied the request: {said.get("message", "without explanation")}',
                reason=said.get("reason", "") or "Forbidden",
            )
        patch = response.get("patch")
        if mutates and patch and document is not None:
            if response.get("patchType") != "JSONPatch":
                raise ApiError(500, f'webhook "{name}": patchType must be JSONPatch')
            operations: Any = json.loads(base64.b64decode(patch))
            document = cast("Json", jsonpatch.apply_patch(document, operations))  # pyright: ignore[reportUnknownMemberType]
        return document

    async def _ask(self, webhook: Json, review: Json) -> Json:
        config: Json = webhook["clientConfig"]
        if "url" in config:
            url = config["url"]
            host = None
        else:
            service = config["service"]
            address = self.services[f"{service['namespace']}/{service['name']}"]
            host = f"{service['name']}.{service['namespace']}.svc"
            url = f"https://{address[0]}:{address[1]}{service.get('path', '/')}"
        client = self._client(base64.b64decode(config.get("caBundle", "")).decode())
        extensions = {"sni_hostname": host} if host else {}
        answer = await client.post(
            url,
            json=review,
            headers={"host": host} if host else {},
            timeout=float(webhook.get("timeoutSeconds", 10)),
            extensions=extensions,
        )
        if answer.status_code != 200:
            raise ValueError(f"status {answer.status_code}: {answer.text[:200]}")
        body: Json = answer.json()
        if body.get("kind") != "AdmissionReview" or body.get("apiVersion") != "admission.k8s.io/v1":
            raise ValueError("the answer is not an AdmissionReview of admission.k8s.io/v1")
        return cast("Json", body["response"])

    def _client(self, ca: str) -> httpx.AsyncClient:
        client = self._clients.get(ca)
        if client is None:
            context = ssl.create_default_context(cadata=ca or None)
            client = self._clients[ca] = httpx.AsyncClient(verify=context, trust_env=False, timeout=DEADLINE_SECONDS)
        return client


def _review(uid: str, request: AdmissionRequest, document: Json | None) -> Json:
    resource = request.resource
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    if request.subresource == "binding":
        kind = {"group": "", "version": "v1", "kind": "Binding"}
    where = {"group": resource.group, "version": resource.version, "resource": resource.plural}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": uid,
            "kind": kind,
            "resource": where,
            "subResource": request.subresource,
            "requestKind": kind,
            "requestResource": where,
            "requestSubResource": request.subresource,
            "name": request.name,
            "namespace": request.namespace,
            "operation": request.operation,
            "userInfo": {"username": request.user, "groups": ["system:authenticated"]},
            "object": document,
            "oldObject": request.old,
            "dryRun": request.dry_run,
            "options": {"kind": f"{request.operation.title()}Options", "apiVersion": "meta.k8s.io/v1"},
        },
    }


def _applies(webhook: Json, request: AdmissionRequest, document: Json | None) -> bool:
    conditions = webhook.get("matchConditions") or []
    if len(conditions) > 1 or (conditions and webhook.get("failurePolicy") == "Ignore"):
        # Conditions are CEL, which is not evaluated here. Of the entries of a path, whose conditions exclude each
        # other, the first that fails closed gets every object. tests/kubernetes has a real API server.
        return False
    resource = request.resource
    asked = f"{resource.plural}/{request.subresource}" if request.subresource else resource.plural
    patterns = (asked, "*/*") if request.subresource else (asked, "*", "*/*")
    if not any(
        _has(rule["operations"], request.operation)
        and _has(rule["apiGroups"], resource.group)
        and _has(rule["apiVersions"], resource.version)
        and any(pattern in rule["resources"] for pattern in patterns)
        for rule in webhook["rules"]
    ):
        return False
    labels = request.namespace_labels
    if resource.kind == "Namespace":
        labels = (document or request.old or {}).get("metadata", {}).get("labels") or {}
    if (resource.namespaced or resource.kind == "Namespace") and not _selects(webhook.get("namespaceSelector"), labels):
        return False
    candidates = [item for item in (document, request.old) if item is not None]
    selector = webhook.get("objectSelector")
    return not candidates or any(_selects(selector, item["metadata"].get("labels") or {}) for item in candidates)


def _has(values: list[str], value: str) -> bool:
    return "*" in values or value in values


def _selects(selector: Json | None, labels: dict[str, str]) -> bool:
    for key, value in ((selector or {}).get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for term in (selector or {}).get("matchExpressions") or []:
        key, values = term["key"], term.get("values") or []
        met = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }[term["operator"]]
        if not met:
            return False
    return True
