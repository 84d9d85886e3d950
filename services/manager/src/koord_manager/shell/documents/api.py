"""HTTP API: apply, delete and get objects, and read position and hash of the fold.

POST /v1/apply                      YAML or JSON, any number of documents -> one result each; ?dryRun=All
POST /v1/delete                     the same documents, or {"kind", "namespace", "name"} objects; ?dryRun=All
GET  /v1/objects/{kind}             objects as mirrored; ?namespace=
GET  /v1/objects/{kind}/{name}      one object; ?namespace= (default "default")
GET  /v1/names/{kind}               names for a shell to complete, at most 500; ?prefix=, ?field=name or namespace
GET  /v1/state                      position and hash of the fold
GET  /v1/leader                     whether this instance leads, and the name of the leader

Without an API server, custom resources include the status that was computed for them.

Each document is applied or refused on its own. The status is 200 if all were applied, 422 if all were refused by a
rule, 207 if some were refused, and 503 if the log could not store one. A dry run returns the results without
storing, with pods and custom resources as they would be stored.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple, cast

import msgspec
from koordcore.events.envelope import AggregateRef, name_token
from koordcore.events.objects import custom_ref
from koordcore.ports.leadership import Leadership
from koordcore.protocol.crd import ResourceVersion, accepted_kinds
from koordcore.protocol.manifests import read_documents
from koordcore.protocol.manifests.reader import KINDS, NAMESPACED
from koordcore.protocol.objects import Node, Pod, Workload
from koordcore.service.access.gate import OBJECTS, REQUEST
from koordcore.service.memory import MemoryReturn
from koordcore.state.aggregates import NodePolicyState, PodState, policy_annotations, policy_resources
from koordcore.values import codec
from koordcore.values.codec import PIECE, array_pieces, object_pieces
from koordcore.values.invalid import InvalidInput
from koordcore.values.shortened import shortened
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from koord_manager.domain.cluster.mirrored_kinds import AGGREGATES, KubeObject, object_of, objects_of_kind, ref_of_name
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.documents.apply import Target
from koord_manager.domain.documents.apply_custom import resource_of_kind
from koord_manager.domain.documents.offered_names import offered_names
from koord_manager.domain.gateway.published_status import with_published_status
from koord_manager.shell.documents.state_hash import hash_of
from koord_manager.shell.intake import FieldError, Intake, Result

_API_VERSIONS = {kind: version for version, kind in KINDS}
_ENDED = ("Succeeded", "Failed")
_OWNERS = {"Deployment": "deployments", "Job": "jobs"}
"""Kinds of workloads, with their plurals. Those of an API server are mirrored as custom resources."""

LARGE_BYTES: Final = 64 * 1024
"""Length of a body from which on it is handled alone."""


def _json(value: object, status: int = 200) -> Response:
    return Response(codec.encode(value), status, media_type="application/json")


class ManagerApi:
    """HTTP routes that read the view, and queue documents for `koord apply` and `koord delete`.

    Args:
        standalone: Whether the cluster has no API server. Then objects are shown with their computed status.
    """

    def __init__(self, view: ManagerView, intake: Intake, leadership: Leadership, *, standalone: bool) -> None:
        self._view = view
        self._intake = intake
        self._leadership = leadership
        self._standalone = standalone
        self._large = asyncio.Lock()
        self._memory = MemoryReturn()

    def routes(self) -> list[Route]:
        return [
            Route("/v1/apply", self.apply, methods=["POST"]),
            Route("/v1/delete", self.delete, methods=["POST"]),
            Route("/v1/objects/{kind}", self.list_objects, methods=["GET"]),
            Route("/v1/objects/{kind}/{name:path}", self.get_object, methods=["GET"]),
            Route("/v1/names/{kind}", self.list_names, methods=["GET"]),
            Route("/v1/state", self.state, methods=["GET"]),
            Route("/v1/leader", self.leader, methods=["GET"]),
        ]

    async def apply(self, request: Request) -> Response:
        async with self._documents(request) as documents:
            results = await self._intake.submit(documents, _begin(request), dry_run=_is_dry_run(request))
        request.scope[OBJECTS] = _audited(results)
        return _json({"results": results}, _status(results))

    @asynccontextmanager
    async def _documents(self, request: Request) -> AsyncGenerator[list[object]]:
        """Provide the documents in a request body, which is parsed in a thread because megabytes of YAML take seconds.

        Large bodies are handled one after the other: the values of several would not fit into the memory.
        """
        body = await request.body()
        is_large = len(body) > LARGE_BYTES
        try:
            async with self._large if is_large else nullcontext():
                yield await asyncio.to_thread(read_documents, body)
        finally:
            if is_large:
                self._memory.schedule()

    async def delete(self, request: Request) -> Response:
        async with self._documents(request) as documents:
            merged = await self._delete(documents, request)
        request.scope[OBJECTS] = _audited(merged)
        return _json({"results": merged}, _status(merged))

    async def _delete(self, documents: list[object], request: Request) -> list[Result]:
        targets: list[object] = []
        results: dict[int, Result] = {}
        for index, document in enumerate(documents):
            target = _target(document)
            if isinstance(target, Result):
                results[index] = target
            else:
                targets.append(target)
        done = iter(await self._intake.submit(targets, _begin(request), dry_run=_is_dry_run(request)))
        return [results[index] if index in results else next(done) for index in range(len(documents))]

    async def list_objects(self, request: Request) -> Response:
        """Handle `GET /v1/objects/{kind}`: return all objects of a kind in order of namespace and name.

        The objects are those at `position`. They are found and encoded in pieces, so that other tasks run in between;
        computed fields, such as the node of a pod, may be newer.
        """
        kind, position = _kind(request), self._view.state.position
        items = self._custom_items(kind) if kind not in AGGREGATES else self._items(kind)
        found = await _in_order(items, request.query_params.get("namespace"))
        members: dict[str, Iterable[bytes]] = {
            "apiVersion": [codec.encode("v1")],
            "kind": [codec.encode("List")],
            "items": array_pieces(item.shown() for item in found),
            "position": [codec.encode(position)],
        }
        body: list[bytes] = []
        for piece in object_pieces(members):
            body.append(piece)
            await asyncio.sleep(0)
        return Response(b"".join(body), media_type="application/json")

    async def list_names(self, request: Request) -> Response:
        """Handle `GET /v1/names/{kind}`: the names of objects of a kind, or their namespaces, that begin with `prefix`.

        No object is encoded, because a shell asks at each press of a key.
        """
        kind, prefix = _kind(request), request.query_params.get("prefix", "")
        field = request.query_params.get("field", "name")
        if field not in ("name", "namespace"):
            raise InvalidInput("name or namespace", field, "field")
        found: set[str] = set()
        at = ("namespace", "name").index(field)
        for number, names in enumerate(self._names(kind), 1):
            text = names[at]
            if text.startswith(prefix):
                found.add(text)
            if number % PIECE == 0:
                await asyncio.sleep(0)
        return _json({"names": offered_names(found)})

    def _names(self, kind: str) -> Iterator[tuple[str, str]]:
        """Yield namespace and name of the objects of a kind."""
        for _, found in objects_of_kind(self._view, kind) if kind in AGGREGATES else ():
            if not isinstance(found, dict):
                yield found.metadata.namespace, found.metadata.name
        resource = resource_of_kind(kind)
        plural = _OWNERS.get(kind, "") if resource is None else resource.plural
        for _, state in self._view.customs(plural):
            meta = state.object["metadata"]
            yield meta.get("namespace", ""), meta.get("name", "")

    def _items(self, kind: str) -> Iterator["_Item"]:
        """Yield the objects of a kind. They are those of the first step."""
        of_owners = self._view.customs(_OWNERS[kind]) if kind in _OWNERS else ()
        for ref, found in objects_of_kind(self._view, kind):
            if not isinstance(found, dict):
                meta = found.metadata
                yield _Item(meta.namespace, meta.name, partial(self._shown, kind, ref.id, found))
        for _, state in of_owners:
            yield _Item.of_document(state.object, partial(_unchanged, state.object))

    def _custom_items(self, kind: str) -> Iterator["_Item"]:
        resource = resource_of_kind(kind)
        assert resource is not None, "_kind gives known kinds only"
        for _, state in self._view.customs(resource.plural):
            yield _Item.of_document(state.object, partial(self._shown_custom, resource, state.object))

    async def get_object(self, request: Request) -> Response:
        kind, name = _kind(request), request.path_params["name"]
        namespace = request.query_params.get("namespace", "default") if _is_namespaced(kind) else ""
        resource = None if kind in AGGREGATES else resource_of_kind(kind)
        if resource is not None:
            ref = custom_ref(resource.plural, namespace, name)
        else:
            ref = ref_of_name(self._view, kind, namespace, name)
            if ref is None and kind in _OWNERS:
                ref = custom_ref(_OWNERS[kind], namespace, name)
        found = object_of(self._view.state.get(ref)) if ref is not None else None
        if found is None or ref is None:
            where = f"{namespace}/{name}" if namespace else name
            return _json({"error": f"{kind} {where} does not exist"}, 404)
        if isinstance(found, dict):
            return _json(self._shown_custom(resource, found) if resource is not None else found)
        return _json(self._shown(kind, ref.id, found))

    async def state(self, request: Request) -> Response:
        """Handle `GET /v1/state`: return the position and the canonical hash of the fold."""
        del request
        found = await hash_of(self._view)
        return _json({"position": found.position, "hash": found.hash})

    async def leader(self, request: Request) -> Response:
        """Handle `GET /v1/leader`: only the leader stores documents, so a client with several addresses asks here."""
        del request
        return _json({"leads": self._leadership.term is not None, "leader": self._leadership.holder})

    def _shown_custom(self, resource: ResourceVersion, document: dict[str, Any]) -> dict[str, Any]:
        return with_published_status(self._view.state, resource.plural, document) if self._standalone else document

    def _shown(self, kind: str, id_: str, found: KubeObject) -> dict[str, Any]:
        """Return an object as Kubernetes shows it, with computed fields such as the node of a pod."""
        shown: dict[str, Any] = {"apiVersion": _API_VERSIONS[kind], "kind": kind}
        shown.update(cast("dict[str, Any]", msgspec.to_builtins(found)))
        if isinstance(found, Workload):
            number = "replicas" if kind == "Deployment" else "parallelism"
            selector = {"selector": shown.pop("selector")} if shown.get("selector") else {}
            shown["spec"] = {number: found.replicas, **selector, "template": shown.pop("template", {})}
            shown.pop("replicas", None)
        elif isinstance(found, Pod):
            placed = self._view.state.get(AggregateRef("pod", id_))
            if isinstance(placed, PodState) and placed.node:
                shown["spec"]["nodeName"] = placed.node
                if found.status.phase not in _ENDED:
                    phase = "Running" if self._runs(id_, placed.node) else "Pending"
                    shown.setdefault("status", {})["phase"] = phase
        elif isinstance(found, Node):
            policy = self._view.state.get(AggregateRef("nodepolicy", id_))
            if isinstance(policy, NodePolicyState):
                _add_policy(shown, policy)
        return shown

    def _runs(self, uid: str, node: str) -> bool:
        return uid in self._view.running_on(name_token(node))


class _Item(NamedTuple):
    namespace: str  # Its namespace; "" for none
    name: str
    shown: Callable[[], dict[str, Any]]

    @classmethod
    def of_document(cls, document: dict[str, Any], shown: Callable[[], dict[str, Any]]) -> "_Item":
        meta = document["metadata"]
        return cls(meta.get("namespace", ""), meta.get("name", ""), shown)


async def _in_order(items: Iterable[_Item], namespace: str | None) -> list[_Item]:
    """Return the items of a namespace (None: of all) by namespace and name, and let other tasks run in between."""
    by_namespace: dict[str, list[_Item]] = {}
    for number, item in enumerate(items, 1):
        if namespace in (None, item.namespace):
            by_namespace.setdefault(item.namespace, []).append(item)
        if number % PIECE == 0:
            await asyncio.sleep(0)
    found: list[_Item] = []
    for name in sorted(by_namespace):
        found += sorted(by_namespace[name], key=attrgetter("name"))
        await asyncio.sleep(0)
    return found


def _unchanged(document: dict[str, Any]) -> dict[str, Any]:
    return document


def _add_policy(node: dict[str, Any], policy: NodePolicyState) -> None:
    lent = {name: str(amount) for name, amount in policy_resources(policy).items()}
    status: dict[str, Any] = node.setdefault("status", {})
    for field in ("capacity", "allocatable"):
        if lent:
            status[field] = {**status.get(field, {}), **lent}
    metadata: dict[str, Any] = node.setdefault("metadata", {})
    for field, decided in (("annotations", policy_annotations(policy)), ("labels", policy.device_labels)):
        if decided:
            metadata[field] = {**metadata.get(field, {}), **decided}


def _status(results: Iterable[Result]) -> int:
    actions = [result.action for result in results]
    if "failed" in actions:
        return 503
    refused = actions.count("refused")
    if not refused:
        return 200
    return 422 if refused == len(actions) else 207


def _begin(request: Request) -> str:
    """Return a new id of the request. Its facts have it as causation, and its audit record names it."""
    request.scope[REQUEST] = str(uuid.uuid4())
    return request.scope[REQUEST]


def _audited(results: Iterable[Result]) -> list[str]:
    """Return kind and name of the objects of results, and what was done with them, for the audit. Those that were
    refused are the last, because a record names some objects only.
    """
    return [_name_of(result) for result in sorted(results, key=lambda result: result.action == "refused")]


def _name_of(result: Result) -> str:
    where = f"{shortened(result.namespace)}/{shortened(result.name)}" if result.namespace else shortened(result.name)
    return f"{shortened(result.kind)} {where}: {result.action}"


def _is_dry_run(request: Request) -> bool:
    written = request.query_params.get("dryRun")
    if written not in (None, "All"):
        raise InvalidInput("All, or absent", written, "dryRun")
    return written is not None


def _custom_kinds() -> list[ResourceVersion]:
    return [found for found in accepted_kinds() if found.stored]


def _is_namespaced(kind: str) -> bool:
    resource = None if kind in AGGREGATES else resource_of_kind(kind)
    return kind in NAMESPACED if resource is None else resource.scope == "Namespaced"


def _kind(request: Request) -> str:
    text = str(request.path_params["kind"]).lower()
    for kind in AGGREGATES:
        if text in (kind.lower(), f"{kind.lower()}s", f"{kind.lower()}es"):
            return kind
    for resource in _custom_kinds():
        if text in (resource.kind.lower(), resource.plural, *resource.short_names):
            return resource.kind
    known = ", ".join((*AGGREGATES, *(resource.kind for resource in _custom_kinds())))
    raise InvalidInput(f"one of {known}", request.path_params["kind"], "kind")


def _target(document: object) -> Target | Result:
    """Return the object that a document names; it is a manifest, or has kind, namespace and name only."""
    if not isinstance(document, dict):
        return Result("refused", errors=[FieldError("document", "an object with kind and name", repr(document)[:200])])
    fields = cast("dict[str, object]", document)
    meta = fields.get("metadata", fields)
    names = cast("dict[str, object]", meta) if isinstance(meta, dict) else fields
    kind, name, namespace = fields.get("kind"), names.get("name"), names.get("namespace")
    if not isinstance(kind, str) or not (kind in AGGREGATES or resource_of_kind(kind)):
        rule = f"one of {', '.join((*AGGREGATES, *(resource.kind for resource in _custom_kinds())))}"
        return Result("refused", errors=[FieldError("kind", rule, repr(kind)[:200])])
    if not isinstance(name, str) or not name:
        return Result("refused", kind, errors=[FieldError("metadata.name", "a name", repr(name)[:200])])
    where = (namespace if isinstance(namespace, str) and namespace else "default") if _is_namespaced(kind) else ""
    return Target(kind, where, name)
