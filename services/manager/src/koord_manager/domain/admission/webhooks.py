"""The webhooks: their paths and gates, and the configuration objects that register them at the API server.

Source:
    manager spec, 7.1, 7.3; protocol spec, 12
"""

import base64
import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from koordcore.protocol import keys, lenient_json
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.concerned import CHANGED_POD, NEW_POD, Matched, negated
from koord_manager.domain.admission.json_object import seen
from koord_manager.domain.admission.matched_entries import matched_in, with_matched, without_matched
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.request import JsonObject

TEMPLATE_ANNOTATION: Final = "template"
TIMEOUT_SECONDS: Final = 10
"""The API server's own default; a longer timeout blocks requests for longer if no manager answers."""
OTHERS_TIMEOUT_SECONDS: Final = 2
"""Longest wait of a pod that admission need not decide about, if the address of the managers leads nowhere."""
CONDITION: Final = "koordinator.sh-concerned"
"""Name of the match condition that tells whether a pod names anything of the protocol."""
_DOMAIN: Final = ".koordinator.sh"
_REVIEW_VERSIONS: Final = ("v1", "v1beta1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """One entry of a webhook configuration object, which says which requests the API server sends to which path."""

    name: str  # Short name, the first part of `entry_name`
    kind: Literal["mutate", "validate"]  # "mutate" if the webhook changes objects, "validate" if it only checks them
    path: str
    group: str
    version: str
    resource: str  # Plural, with a subresource as in `pods/binding`
    operations: tuple[str, ...]  # Operations that are sent, such as CREATE
    scope: str  # `Cluster` or `Namespaced`
    # Reaction of the API server if the webhook does not answer: deny ("Fail") or allow ("Ignore").
    failure_policy: Literal["Fail", "Ignore"]
    gates: tuple[str, ...]  # The webhook is served if all these feature gates are on
    namespace_selector: JsonObject | None = None  # Selector of namespaces whose objects are sent, or None for all
    object_selector: JsonObject | None = None  # Selector of objects that are sent, or None for all
    condition: str = ""  # CEL expression for the objects that are sent, or "" for all
    timeout_seconds: int = TIMEOUT_SECONDS

    @property
    def entry_name(self) -> str:
        return self.name + _DOMAIN


_NO_CONTROL_PLANE: Final[JsonObject] = {
    "matchExpressions": [
        {"key": keys.CONTROL_PLANE_NAMESPACE, "operator": "DoesNotExist"},
        # The label is the name of the namespace. Pods of these two start also while no manager runs.
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "koordinator-system"]},
    ]
}
_QUOTAS: Final = "scheduling-sigs-k8s-io-v1alpha1-elasticquota"
_SCHEDULING: Final = "scheduling.koordinator.sh"


def _webhook(
    name: str,
    kind: Literal["mutate", "validate"],
    path: str,
    resource: tuple[str, str, str],
    operations: Sequence[str],
    gates: Sequence[str],
    *,
    scope: str = "Namespaced",
    ignore: bool = False,
    namespace_selector: JsonObject | None = None,
    object_selector: JsonObject | None = None,
    condition: str = "",
) -> Webhook:
    group, version, plural = resource
    return Webhook(
        name=name,
        kind=kind,
        path=path,
        group=group,
        version=version,
        resource=plural,
        operations=tuple(operations),
        scope=scope,
        failure_policy="Ignore" if ignore else "Fail",
        gates=tuple(gates),
        namespace_selector=namespace_selector,
        object_selector=object_selector,
        condition=condition,
        timeout_seconds=OTHERS_TIMEOUT_SECONDS if name.endswith("-others") else TIMEOUT_SECONDS,
    )


def _in(key: str, value: str) -> JsonObject:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}


WEBHOOKS: Final[tuple[Webhook, ...]] = (
    _webhook(
        "mpod-create", "mutate", "/mutate-pod", ("", "v1", "pods"), ["CREATE"], ["PodMutatingWebhook"],
        namespace_selector=_NO_CONTROL_PLANE, condition=NEW_POD,
    ),
    _webhook(
        "mpod-create-others", "mutate", "/mutate-pod", ("", "v1", "pods"), ["CREATE"], ["PodMutatingWebhook"],
        namespace_selector=_NO_CONTROL_PLANE, condition=negated(NEW_POD), ignore=True,
    ),
    _webhook(
        "mpod-update", "mutate", "/mutate-pod", ("", "v1", "pods"), ["UPDATE"], ["PodMutatingWebhook"],
        namespace_selector=_NO_CONTROL_PLANE, object_selector=_in(keys.MUTATING_UPDATE, "true"),
    ),
    _webhook(
        "mnode-status", "mutate", "/mutate-node-status", ("", "v1", "nodes/status"), ["CREATE", "UPDATE"],
        ["NodeMutatingWebhook"], scope="Cluster", ignore=True,
    ),
    _webhook(
        "mreservation-create", "mutate", "/mutate-reservation", (_SCHEDULING, "v1alpha1", "reservations"), ["CREATE"],
        ["ReservationMutatingWebhook"], scope="Cluster",
    ),
    _webhook(
        "melasticquota", "mutate", f"/mutate-{_QUOTAS}", ("scheduling.sigs.k8s.io", "v1alpha1", "elasticquotas"),
        ["CREATE"], ["ElasticMutatingWebhook"],
    ),
    _webhook(
        "vpod", "validate", "/validate-pod", ("", "v1", "pods"), ["CREATE", "UPDATE"], ["PodValidatingWebhook"],
        namespace_selector=_NO_CONTROL_PLANE, condition=CHANGED_POD,
    ),
    _webhook(
        "vpod-others", "validate", "/validate-pod", ("", "v1", "pods"), ["CREATE", "UPDATE"], ["PodValidatingWebhook"],
        namespace_selector=_NO_CONTROL_PLANE, condition=negated(CHANGED_POD), ignore=True,
    ),
    _webhook(
        "vpodbinding", "validate", "/validate-pod-binding", ("", "v1", "pods/binding"), ["CREATE"],
        ["PodValidatingWebhook", "BindingAdmissionWebhook"], ignore=True,
    ),
    _webhook(
        "vnode", "validate", "/validate-node", ("", "v1", "nodes"), ["CREATE", "UPDATE"], ["NodeValidatingWebhook"],
        scope="Cluster", ignore=True,
    ),
    _webhook(
        "vconfigmap", "validate", "/validate-configmap", ("", "v1", "configmaps"), ["CREATE", "UPDATE", "DELETE"],
        ["ConfigMapValidatingWebhook"], object_selector=_in(keys.CONFIG_MAP_TYPE, keys.CONFIG_MAP_TYPE_SLO),
    ),
    _webhook(
        "velasticquota", "validate", f"/validate-{_QUOTAS}", ("scheduling.sigs.k8s.io", "v1alpha1", "elasticquotas"),
        ["CREATE", "UPDATE", "DELETE"], ["ElasticValidatingWebhook"],
    ),
)  # fmt: skip
"""In the order of the configuration objects."""


def served(options: Options) -> list[Webhook]:
    """Return the webhooks whose feature gates are all on, in the order of the configuration objects."""
    return [webhook for webhook in WEBHOOKS if all(options.enabled(gate) for gate in webhook.gates)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Address by which the API server reaches the webhooks: a Service, or a URL if `host` is set."""

    namespace: str
    service: str
    host: str = ""
    port: int = 9876

    def client_config(self, path: str, ca_bundle: bytes) -> JsonObject:
        """Return the field `clientConfig` of a webhook entry for a path.

        Args:
            ca_bundle: Certificates of the CA as PEM text; empty while there is no certificate.
        """
        bundle = {"caBundle": base64.b64encode(ca_bundle).decode()} if ca_bundle else {}
        if self.host:
            shown = f"[{self.host}]" if ":" in self.host else self.host
            return {**bundle, "url": f"https://{shown}:{self.port}{path}"}
        return {**bundle, "service": {"namespace": self.namespace, "name": self.service, "path": path}}


def configuration(
    kind: Literal["mutate", "validate"], name: str, options: Options, address: Address, ca_bundle: bytes
) -> JsonObject:
    """Return a configuration object that registers the webhooks whose gates are on.

    `k8s/base/webhooks.yaml` contains the objects with the webhooks of the default gates.

    Args:
        kind: Whether to register the mutating or the validating webhooks.
        address: How the API server reaches the webhooks.
    """
    entries: list[JsonObject] = []
    for webhook in served(options):
        if webhook.kind != kind:
            continue
        entry: JsonObject = {
            "name": webhook.entry_name,
            "admissionReviewVersions": list(_REVIEW_VERSIONS),
            "clientConfig": address.client_config(webhook.path, ca_bundle),
            "failurePolicy": webhook.failure_policy,
            "sideEffects": "None",
            "rules": [
                {
                    "apiGroups": [webhook.group],
                    "apiVersions": [webhook.version],
                    "operations": list(webhook.operations),
                    "resources": [webhook.resource],
                    "scope": webhook.scope,
                }
            ],
        }
        if webhook.namespace_selector:
            entry["namespaceSelector"] = copy.deepcopy(webhook.namespace_selector)
        if webhook.object_selector:
            entry["objectSelector"] = copy.deepcopy(webhook.object_selector)
        if webhook.condition:
            entry["matchConditions"] = [{"name": CONDITION, "expression": webhook.condition}]
        entry["timeoutSeconds"] = webhook.timeout_seconds
        entries.append(entry)
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration" if kind == "mutate" else "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": entries,
    }


def reconciled(
    present: JsonObject, options: Options, address: Address, ca_bundle: bytes, matched: Matched | None = None
) -> JsonObject | None:
    """Return the corrected webhook configuration object, or None if `present` is correct.

    At the first call, the installed entries are saved in the annotation `template`. The result has those entries of
    the template whose webhooks are served, with the given address and CA. Fields that the API server filled in stay.

    An entry that was installed again with other fields replaces that of the template. If a gate that is off by default
    is on, and its entry was not installed, the entry is added. So `k8s/base/webhooks.yaml` contains the entries of the
    default gates only, and installing it again changes nothing.

    What `matched_entries` adds is no part of the template, and no manifest owns it.

    Args:
        matched: Pods that profiles match now; None keeps those of the object, because this manager does not decide it.

    Raises:
        InvalidInput: The annotation `template` is not valid.

    Source: manager spec, 7.3.
    """
    metadata = cast("JsonObject", present.get("metadata") or {})
    annotations = cast("JsonObject", metadata.get("annotations") or {})
    stored = annotations.get(TEMPLATE_ANNOTATION)
    found = cast("list[JsonObject]", present.get("webhooks") or [])
    installed = without_matched(found)
    template = _template(_entries(str(stored)) if stored is not None else [], installed)
    template += _added(present, template, options, address)
    kept = stored if stored is not None and _entries(str(stored)) == template else codec.encode(template).decode()
    paths = {webhook.path for webhook in served(options)}
    entries: list[JsonObject] = []
    for entry in template:
        path = _path_of(cast("JsonObject", entry.get("clientConfig") or {}))
        if path in paths:
            entries.append({**entry, "clientConfig": _client_config(entry, address, path, ca_bundle)})
    wanted: JsonObject = {
        **present,
        "metadata": {**metadata, "annotations": {**annotations, TEMPLATE_ANNOTATION: kept}},
        "webhooks": with_matched(entries, matched_in(found) if matched is None else matched),
    }
    return None if wanted == present else wanted


def _template(stored: list[JsonObject], installed: list[JsonObject]) -> list[JsonObject]:
    """Return the entries of the new template: the stored ones, replaced by installed entries with other fields.

    Installed entries that the stored template does not have are added.
    """
    by_name = {str(entry.get("name")): entry for entry in stored}
    for entry in installed:
        name = str(entry.get("name"))
        if name not in by_name or _without_address(by_name[name]) != _without_address(entry):
            by_name[name] = entry
    return list(by_name.values())


def _without_address(entry: JsonObject) -> JsonObject:
    return {field: value for field, value in entry.items() if field != "clientConfig"}


def _added(present: JsonObject, template: list[JsonObject], options: Options, address: Address) -> list[JsonObject]:
    """Return the entries to add: those of gates that are off by default and on now, and that were not installed."""
    kind = "mutate" if present.get("kind") == "MutatingWebhookConfiguration" else "validate"
    known = {entry.get("name") for entry in template} | {webhook.entry_name for webhook in served(Options())}
    made = cast("list[JsonObject]", configuration(kind, "", options, address, b"")["webhooks"])
    return [entry for entry in made if entry["name"] not in known]


def _client_config(entry: JsonObject, address: Address, path: str, ca_bundle: bytes) -> JsonObject:
    fresh = address.client_config(path, ca_bundle)
    before = seen(entry, "clientConfig", "service")
    if "service" in fresh and "port" in before:
        fresh["service"]["port"] = before["port"]
    return fresh


def _entries(text: str) -> list[JsonObject]:
    found = lenient_json.parse_json(text)
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in cast("list[object]", found)):
        raise InvalidInput("a JSON list of webhooks", text, f"metadata.annotations[{TEMPLATE_ANNOTATION}]")
    return cast("list[JsonObject]", found)


def _path_of(client_config: JsonObject) -> str:
    service: Any = client_config.get("service")
    if isinstance(service, dict):
        return str(cast("JsonObject", service).get("path") or "")
    _, _, rest = str(client_config.get("url") or "").partition("://")
    _, slash, path = rest.partition("/")
    return slash + path
