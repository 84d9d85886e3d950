# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# API objects are plain JSON here, as they are on the wire.
"""Create, update, patch, delete and the pod subresources, on the store: what an API server does with one request.

source    https://kubernetes.io/docs/reference/using-api/api-concepts/; apiserver's registry of pods (binding, eviction)
"""

import copy
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from support.kubernetes.admission import MUTATING, VALIDATING, AdmissionRequest, Webhooks, give_name
from support.kubernetes.answers import SUCCESS, ApiError, conflict, invalid, not_found
from support.kubernetes.patches import (
    APPLY_PATCH,
    STRATEGIC_PATCH,
    MalformedPatch,
    UnprocessablePatch,
    apply_patch,
    server_side_apply,
)
from support.kubernetes.resources import BUILT_IN, Json, Resource, resources_of
from support.kubernetes.selectors import matches
from support.kubernetes.store import Key, Store
from support.kubernetes.validation import default_and_validate

_NAMESPACES = ("", "namespaces")
_PODS = ("", "pods")
_CRDS = ("apiextensions.k8s.io", "customresourcedefinitions")
_BUDGETS = ("policy", "poddisruptionbudgets")
_ADMISSION = "admissionregistration.k8s.io"
MOST_RETRIES = 5


class Verbs:
    """The requests of one API server on its store."""

    def __init__(self, store: Store, webhooks: Webhooks) -> None:
        self.store = store
        self.webhooks = webhooks
        self.resources: dict[tuple[str, str, str], Resource] = {
            (item.group, item.version, item.plural): item for item in BUILT_IN
        }
        self.now: Callable[[], datetime] = lambda: datetime.now(UTC)
        self.applied: dict[tuple[object, ...], Json] = {}  # what a manager of fields applied last to an object
        for name in ("default", "kube-system", "koordinator-system"):
            self._store_new(self.resources["", "v1", "namespaces"], "", {"metadata": {"name": name}})

    # -- reading ----------------------------------------------------------------------------------------------------

    def get(self, resource: Resource, key: Key) -> Json:
        """One object, as of the version asked. Raises ApiError 404."""
        found = self.store.shelf(resource.store_key).objects.get(key)
        if found is None:
            raise not_found(resource.plural, key[1])
        return self.shown(resource, found)

    def listed(self, group: str, version: str) -> Json:
        """The resources of an API version (discovery). Raises ApiError 404 if there are none."""
        found = [item for item in self.resources.values() if (item.group, item.version) == (group, version)]
        if not found:
            raise ApiError(404, "the server could not find the requested resource")
        entries: list[Json] = []
        for item in found:
            entries.append({"name": item.plural, "kind": item.kind, "namespaced": item.namespaced})
            if item.has_status:
                entries.append({"name": f"{item.plural}/status", "kind": item.kind, "namespaced": item.namespaced})
            if item.replicas_at:
                entries.append({"name": f"{item.plural}/scale", "kind": "Scale", "namespaced": item.namespaced})
        return {"kind": "APIResourceList", "groupVersion": found[0].api_version, "resources": entries}

    def scale(self, resource: Resource, key: Key) -> Json:
        """GET of /scale. Raises ApiError: 404 without an object or a scale, 500 if the object has no replicas."""
        if not resource.replicas_at:
            raise ApiError(404, "the server could not find the requested resource")
        found = self.get(resource, key)
        replicas: Any = found
        for field in resource.replicas_at:
            replicas = replicas.get(field) if isinstance(replicas, dict) else None
        if replicas is None:
            raise ApiError(500, f"the spec replicas field {'.'.join(resource.replicas_at)!r} does not exist")
        meta = {name: found["metadata"].get(name) for name in ("name", "namespace", "uid", "creationTimestamp")}
        spec = {"replicas": replicas} if replicas else {}
        return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": meta, "spec": spec}

    def shown(self, resource: Resource, document: Json) -> Json:
        """An object in the version of the request."""
        return {**document, "apiVersion": resource.api_version, "kind": resource.kind}

    # -- writing ----------------------------------------------------------------------------------------------------

    async def create(self, resource: Resource, namespace: str, document: Json, user: str, *, dry_run: bool) -> Json:
        """POST of an object. Raises ApiError."""
        meta = document.setdefault("metadata", {})
        self._check_kind(resource, document)
        if meta.get("resourceVersion"):
            raise ApiError(400, "resourceVersion should not be set on objects to be created")
        if resource.namespaced:
            if meta.get("namespace", namespace) != namespace:
                raise ApiError(
                    400, "the namespace of the provided object does not match the namespace sent on the request"
                )
            meta["namespace"] = namespace
            if ("", namespace) not in self.store.shelf(_NAMESPACES).objects:
                raise not_found("namespaces", namespace)
        if not meta.get("name") and not meta.get("generateName"):
            raise invalid(resource.kind, "", "metadata.name", "Required value: name or generateName is required")
        key = (namespace, meta.get("name", ""))
        document = await self._admit(resource, "", "CREATE", key, document, None, user, dry_run=dry_run)
        key = (namespace, give_name(document))
        if key in self.store.shelf(resource.store_key).objects:
            raise ApiError(409, f'{resource.plural} "{key[1]}" already exists', reason="AlreadyExists")
        if (
            resource.has_status
            and not resource.is_custom
            and resource.kind not in ("Node", "Pod", "PodDisruptionBudget")
        ):
            document.pop("status", None)
        if resource.is_custom and resource.has_status:
            document.pop("status", None)
        if resource.kind == "Pod" and not dry_run:
            document.setdefault("status", {})["phase"] = "Pending"
        if dry_run:
            return default_and_validate(resource, self._begun(document, namespace))
        return self._store_new(resource, namespace, document)

    def _begun(self, document: Json, namespace: str) -> Json:
        meta = document["metadata"]
        meta["uid"] = str(uuid.uuid4())
        meta["creationTimestamp"] = self._timestamp()
        meta.setdefault("generation", 1)
        meta["managedFields"] = [
            {"manager": "test", "operation": "Update", "time": meta["creationTimestamp"], "fieldsV1": {"f:spec": {}}}
        ]
        if namespace:
            meta["namespace"] = namespace
        return document

    def _store_new(self, resource: Resource, namespace: str, document: Json) -> Json:
        document = default_and_validate(resource, self._begun(self.shown(resource, document), namespace))
        stored = self.store.put(resource.store_key, (namespace, document["metadata"]["name"]), document)
        if resource.store_key == _CRDS:
            self._install(stored)
        return stored

    def _install(self, definition: Json) -> None:
        for item in resources_of(definition):
            self.resources[item.group, item.version, item.plural] = item
        established = {**copy.deepcopy(definition)}
        established["status"] = {
            "conditions": [{"type": "Established", "status": "True", "reason": "InitialNamesAccepted"}]
        }
        self.store.put(_CRDS, ("", definition["metadata"]["name"]), established)

    async def update(
        self, resource: Resource, key: Key, subresource: str, document: Json, user: str, *, dry_run: bool
    ) -> Json:
        """PUT of an object or of its status. Raises ApiError."""
        old = self.store.shelf(resource.store_key).objects.get(key)
        if old is None:
            raise not_found(resource.plural, key[1])
        self._check_kind(resource, document)
        asked = document.get("metadata", {}).get("resourceVersion")
        if resource.is_custom and not asked:
            raise invalid(resource.kind, key[1], "metadata.resourceVersion", "must be specified for an update")
        return await self._replace(resource, key, subresource, old, document, user, dry_run=dry_run)

    async def patch(
        self,
        resource: Resource,
        key: Key,
        subresource: str,
        content_type: str,
        patch: object,
        user: str,
        *,
        dry_run: bool,
        manager: str = "",
    ) -> Json:
        """PATCH of an existing object or of its status. `manager`: owner of applied fields. Raises ApiError."""
        if content_type == STRATEGIC_PATCH and resource.is_custom:
            raise ApiError(415, "the body of the request was in an unknown format - accepted media types include: "
                                "application/json-patch+json, application/merge-patch+json")  # fmt: skip
        for attempt in range(MOST_RETRIES):
            old = self.store.shelf(resource.store_key).objects.get(key)
            if old is None:
                raise not_found(resource.plural, key[1])
            owned = (resource.store_key, key, old["metadata"]["uid"], subresource, manager)
            shown = copy.deepcopy(self.shown(resource, old))
            try:
                if content_type == APPLY_PATCH:
                    applied = cast("Json", patch)
                    document = server_side_apply(shown, applied, self.applied.get(owned, {}))
                    self.applied[owned] = applied
                else:
                    document = apply_patch(content_type, shown, patch)
            except MalformedPatch as error:
                raise ApiError(400, str(error)) from error
            except UnprocessablePatch as error:
                raise ApiError(422, str(error)) from error
            try:
                return await self._replace(
                    resource, key, subresource, old, document, user, dry_run=dry_run, is_patch=True
                )
            except ApiError as error:
                names_version = isinstance(patch, dict) and "resourceVersion" in cast("Json", patch).get("metadata", {})
                if error.code != 409 or names_version or attempt == MOST_RETRIES - 1:
                    raise
        raise AssertionError("not reached")

    async def _replace(
        self,
        resource: Resource,
        key: Key,
        subresource: str,
        old: Json,
        document: Json,
        user: str,
        *,
        dry_run: bool,
        is_patch: bool = False,
    ) -> Json:
        meta, before = document.setdefault("metadata", {}), old["metadata"]
        asked = meta.get("resourceVersion")
        if asked and asked != before["resourceVersion"]:
            raise conflict(resource.plural, key[1], "the object has been modified; please apply your changes to the "
                                                    "latest version and try again")  # fmt: skip
        if meta.get("uid") and meta["uid"] != before["uid"]:
            if is_patch:  # an update has the uid as a precondition, a patch changes a field that may not change
                raise invalid(resource.kind, key[1], "metadata.uid", "field is immutable")
            raise conflict(resource.plural, key[1], f"Precondition failed: UID in precondition: {meta['uid']}")
        if meta.get("name", key[1]) != key[1]:
            raise ApiError(
                400, f"the name of the object ({meta['name']}) does not match the name on the URL ({key[1]})"
            )
        for field in ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"):
            if field in before:
                meta[field] = before[field]
            else:
                meta.pop(field, None)
        meta["name"] = key[1]
        if key[0]:
            meta["namespace"] = key[0]
        if subresource == "status":
            kept = {**old, "status": document.get("status", {})}
            if not resource.is_custom:  # labels and annotations of nodes and pods may change with their status
                kept["metadata"] = meta
            document = kept
        elif resource.has_status:
            if "status" in old:
                document["status"] = old["status"]
            else:
                document.pop("status", None)
        document = await self._admit(resource, subresource, "UPDATE", key, document, old, user, dry_run=dry_run)
        current = self.store.shelf(resource.store_key).objects.get(key)
        if current is None:
            raise not_found(resource.plural, key[1])
        if current["metadata"]["resourceVersion"] != before["resourceVersion"]:  # it moved while webhooks were asked
            raise conflict(resource.plural, key[1], "the object has been modified")
        if resource.kind == "Pod" and subresource == "":
            self._refuse_spec_change(key[1], old, document)
        document = default_and_validate(resource, self.shown(resource, copy.deepcopy(document)))
        document["metadata"]["resourceVersion"] = before["resourceVersion"]
        if document == self.shown(resource, old) or dry_run:
            return document  # an update without a change does not make a version
        if document.get("spec") != old.get("spec"):
            document["metadata"]["generation"] = before.get("generation", 1) + 1
        left = document["metadata"]
        is_over = resource.kind != "Pod" or left.get("deletionGracePeriodSeconds") == 0
        if left.get("deletionTimestamp") and not left.get("finalizers") and is_over:
            return self.store.remove(resource.store_key, key)
        stored = self.store.put(resource.store_key, key, document)
        if resource.store_key == _CRDS and subresource == "":
            self._install(stored)
        return self.shown(resource, stored)

    def _refuse_spec_change(self, name: str, old: Json, new: Json) -> None:
        def fixed(document: Json) -> Json:
            spec = copy.deepcopy(document.get("spec") or {})
            for field in ("tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds", "schedulingGates"):
                spec.pop(field, None)
            for container in (*spec.get("containers", []), *spec.get("initContainers", [])):
                container.pop("image", None)
            return spec

        if fixed(old) != fixed(new):
            raise invalid(
                "Pod", name, "spec", "Forbidden: pod updates may not change fields other than images, tolerations"
            )

    async def delete(self, resource: Resource, key: Key, options: Json, user: str, *, dry_run: bool = False) -> Json:
        """DELETE. A pod on a node keeps living for its grace period; finalizers hold an object. Raises ApiError."""
        old = self.store.shelf(resource.store_key).objects.get(key)
        if old is None:
            raise not_found(resource.plural, key[1])
        meta = old["metadata"]
        preconditions: Json = options.get("preconditions") or {}
        for field, found in (("uid", meta["uid"]), ("resourceVersion", meta["resourceVersion"])):
            if preconditions.get(field) not in (None, "", found):
                raise conflict(resource.plural, key[1], f"Precondition failed: {field} in precondition: "
                                                        f"{preconditions[field]}, in object meta: {found}")  # fmt: skip
        await self._admit(resource, "", "DELETE", key, None, old, user, dry_run=dry_run)
        grace = options.get("gracePeriodSeconds")
        if resource.kind == "Pod" and grace is None:
            grace = (old.get("spec") or {}).get("terminationGracePeriodSeconds", 30)
        on_node = resource.kind == "Pod" and (old["spec"].get("nodeName") or "")
        finished = resource.kind == "Pod" and (old.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        waits = bool(on_node) and not finished and bool(grace)
        if dry_run:
            return old
        if waits or meta.get("finalizers"):
            if meta.get("deletionTimestamp"):
                return old
            leaving = copy.deepcopy(old)
            leaving["metadata"]["deletionTimestamp"] = self._timestamp(float(grace or 0))
            leaving["metadata"]["deletionGracePeriodSeconds"] = int(grace or 0)
            return self.store.put(resource.store_key, key, leaving)
        return self.store.remove(resource.store_key, key)

    # -- subresources of pods ---------------------------------------------------------------------------------------

    async def bind(self, key: Key, binding: Json, user: str, *, dry_run: bool) -> Json:
        """POST pods/<name>/binding. Raises ApiError: 409 when the pod is another one, assigned, or being deleted."""
        pods = self.resources["", "v1", "pods"]
        target: Json = binding.get("target") or {}
        if target.get("kind", "Node") not in ("", "Node"):
            raise invalid("Binding", key[1], "target.kind", 'Unsupported value: supported values: "Node", "<empty>"')
        if not target.get("name"):
            raise invalid("Binding", key[1], "target.name", "Required value")
        meta: Json = binding.get("metadata") or {}
        if meta.get("name", key[1]) != key[1]:
            raise ApiError(400, "name in URL does not match name in Binding object")
        await self._admit(pods, "binding", "CREATE", key, binding, None, user, dry_run=dry_run)
        pod = self.store.shelf(_PODS).objects.get(key)
        if pod is None:
            raise not_found("pods", key[1])
        found = pod["metadata"]
        for field in ("uid", "resourceVersion"):
            if meta.get(field) and meta[field] != found[field]:
                raise conflict("pods/binding", key[1], f"Precondition failed: {field} in precondition: {meta[field]}, "
                                                       f"in object meta: {found[field]}")  # fmt: skip
        if found.get("deletionTimestamp"):
            raise conflict("pods/binding", key[1], f"pod {key[1]} is being deleted, cannot be assigned to a host")
        if pod["spec"].get("nodeName"):
            raise conflict(
                "pods/binding", key[1], f'pod {key[1]} is already assigned to node "{pod["spec"]["nodeName"]}"'
            )
        if pod["spec"].get("schedulingGates"):
            raise conflict("pods/binding", key[1], f"pod {key[1]} has non-empty .spec.schedulingGates")
        if dry_run:
            return SUCCESS
        bound = copy.deepcopy(pod)
        bound["spec"]["nodeName"] = target["name"]
        bound["status"].pop("nominatedNodeName", None)
        annotations = {**(found.get("annotations") or {}), **(meta.get("annotations") or {})}
        if annotations:
            bound["metadata"]["annotations"] = annotations
        conditions: list[Json] = bound["status"].setdefault("conditions", [])
        conditions[:] = [item for item in conditions if item["type"] != "PodScheduled"]
        conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": self._timestamp()})
        self.store.put(_PODS, key, bound)
        return SUCCESS

    async def evict(self, key: Key, eviction: Json, user: str, *, dry_run: bool) -> Json:
        """POST pods/<name>/eviction (policy/v1). Raises ApiError: 429 while a disruption budget forbids it."""
        pods = self.resources["", "v1", "pods"]
        pod = self.store.shelf(_PODS).objects.get(key)
        if pod is None:
            raise not_found("pods", key[1])
        options: Json = eviction.get("deleteOptions") or {}
        phase = (pod.get("status") or {}).get("phase")
        if phase not in ("Succeeded", "Failed", "Pending") and not pod["metadata"].get("deletionTimestamp"):
            self._spend_budget(key, pod, options)
        await self.delete(pods, key, options, user, dry_run=dry_run)
        return SUCCESS

    def _spend_budget(self, key: Key, pod: Json, options: Json) -> None:
        preconditions: Json = options.get("preconditions") or {}
        if preconditions.get("uid") not in (None, pod["metadata"]["uid"]):
            raise conflict("pods", key[1], "Precondition failed: UID in precondition differs")
        budgets = [
            (name, budget)
            for name, budget in self.store.shelf(_BUDGETS).objects.items()
            if name[0] == key[0] and _selected_by(budget, pod)
        ]
        if len(budgets) > 1:
            raise ApiError(
                500, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            )
        for name, budget in budgets:
            status: Json = budget.get("status") or {}
            if status.get("disruptionsAllowed", 0) <= 0:
                raise ApiError(
                    429,
                    "Cannot evict pod as it would violate the pod's disruption budget.",
                    causes=[{"reason": "DisruptionBudget", "message": _needs(name[1], status)}],
                )  # fmt: skip
            spent = copy.deepcopy(budget)
            spent["status"]["disruptionsAllowed"] -= 1
            self.store.put(_BUDGETS, name, spent)

    # -- what surrounds a write -------------------------------------------------------------------------------------

    def _check_kind(self, resource: Resource, document: Json) -> None:
        if (
            document.get("kind", resource.kind) != resource.kind
            or document.get("apiVersion", resource.api_version) != resource.api_version
        ):
            raise ApiError(
                400,
                f"{document.get('apiVersion')} {document.get('kind')} does not match {resource.kind} of the URL",
            )
        document["kind"], document["apiVersion"] = resource.kind, resource.api_version

    async def _admit(
        self,
        resource: Resource,
        subresource: str,
        operation: str,
        key: Key,
        document: Json | None,
        old: Json | None,
        user: str,
        *,
        dry_run: bool,
    ) -> Json:
        configurations = [
            {**item, "kind": kind}
            for plural, kind in (
                ("mutatingwebhookconfigurations", MUTATING),
                ("validatingwebhookconfigurations", VALIDATING),
            )
            for item in self.store.shelf((_ADMISSION, plural)).objects.values()
        ]
        if not configurations or resource.group == _ADMISSION:
            return document or {}
        labels = self.store.shelf(_NAMESPACES).objects.get(("", key[0]), {}).get("metadata", {}).get("labels") or {}
        request = AdmissionRequest(
            resource=resource,
            subresource=subresource,
            operation=operation,
            namespace=key[0],
            name=key[1],
            object=copy.deepcopy(document),
            old=copy.deepcopy(old),
            user=user,
            dry_run=dry_run,
            namespace_labels=labels,
        )
        return await self.webhooks.admit(configurations, request) or {}

    def _timestamp(self, later_seconds: float = 0.0) -> str:
        moment = self.now() + timedelta(seconds=later_seconds)
        return moment.replace(microsecond=0).isoformat().replace("+00:00", "Z")


def _needs(name: str, status: Json) -> str:
    wanted, found = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
    return f"The disruption budget {name} needs {wanted} healthy pods and has {found} currently"


def _selected_by(budget: Json, pod: Json) -> bool:
    selector: Any = (budget.get("spec") or {}).get("selector") or {}
    terms = ",".join(f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items())
    return bool(terms) and matches(pod, terms, "")
