# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# API objects are plain JSON here, as they are on the wire.
"""An emulated API server over real HTTP(S): pages of lists, watches with bookmarks, writes, tokens, faults on demand.

    async with running_api_server() as server:
        server.url, server.kubeconfig(path)     # how clients reach it
        await server.apply({...})               # a user's kubectl
        server.faults.answer("POST", "/binding", 503, times=2)

kmock answers canned requests; it has no versions, no history to expire, no admission and no binding, which are what the
gateway's tests are about, so the server's own behaviour is written down here.

source    https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

import asyncio
import contextlib
import copy
import json
import secrets
import socket
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from email.utils import formatdate
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

import uvicorn
import yaml
from koordcore.bus.setup.tls_files import TlsFiles
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from support.kubernetes.admission import Webhooks
from support.kubernetes.answers import ApiError, status
from support.kubernetes.authorization import User
from support.kubernetes.faults import Faults
from support.kubernetes.patches import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from support.kubernetes.resources import Json, Resource
from support.kubernetes.selectors import matches, name_selected
from support.kubernetes.store import Store
from support.kubernetes.verbs import Verbs

_PATCHES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)
_SUBRESOURCES = ("status", "binding", "eviction")


class ApiServer:
    """The server's state and its ASGI application.

    bookmark_seconds    how often watches that ask for it get a bookmark
    expire_with_status  an expired watch is refused with HTTP 410; else it gets an ERROR event with code 410
    refused             (user, verb, resource, name) of every request that RBAC refused
    requests            (method, path) of every request, in order; WATCH for watches
    watching            plural of a resource -> watches of it that are open
    bookmarked          plural of a resource -> version of the last bookmark that was sent to a watch of it
    """

    def __init__(self, *, bookmark_seconds: float = 1.0) -> None:
        self.store = Store()
        self.webhooks = Webhooks()
        self.verbs = Verbs(self.store, self.webhooks)
        self.faults = Faults()
        self.bookmark_seconds = bookmark_seconds
        self.expire_with_status = False
        self.requests: list[tuple[str, str]] = []
        self.watching: Counter[str] = Counter()
        self.bookmarked: Counter[str] = Counter()
        self.refused: list[tuple[str, str, str, str]] = []
        self.users: dict[str, User] = {"admin-token": User("kubernetes-admin")}
        self.url = ""
        self.ca_file: Path | None = None
        self._pages: dict[str, tuple[int, list[Json]]] = {}
        self._stopping = asyncio.Event()

    # -- for tests --------------------------------------------------------------------------------------------------

    def kubeconfig(self, path: Path, *, token: str = "admin-token") -> Path:
        """Writes a kubeconfig for a user's token."""
        cluster: Json = {"server": self.url}
        if self.ca_file is not None:
            cluster["certificate-authority"] = str(self.ca_file)
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "emulated", "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "emulated", "context": {"cluster": "emulated", "user": "user"}}],
            "current-context": "emulated",
        }
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        return path

    def resource(self, plural: str, group: str | None = None) -> Resource:
        """A served resource by its plural."""
        return next(
            item
            for item in self.verbs.resources.values()
            if item.plural == plural and (group is None or item.group == group)
        )

    async def apply(self, document: Json) -> Json:
        """Create, or replace spec and metadata, as a user's `kubectl apply` does; raises ApiError."""
        resource = next(
            item
            for item in self.verbs.resources.values()
            if (item.api_version, item.kind) == (document["apiVersion"], document["kind"])
        )
        document = copy.deepcopy(document)
        meta = document["metadata"]
        namespace = meta.get("namespace", "default") if resource.namespaced else ""
        key = (namespace, meta["name"])
        if key not in self.store.shelf(resource.store_key).objects:
            return await self.verbs.create(resource, namespace, document, "kubernetes-admin", dry_run=False)
        patch = {field: value for field, value in document.items() if field not in ("status",)}
        return await self.verbs.patch(resource, key, "", MERGE_PATCH, patch, "kubernetes-admin", dry_run=False)

    async def patch_status(self, plural: str, namespace: str, name: str, change: Json) -> Json:
        """A merge patch of an object's status, as a kubelet sends it."""
        resource = self.resource(plural)
        return await self.verbs.patch(
            resource, (namespace, name), "status", MERGE_PATCH, {"status": change}, "kubelet", dry_run=False
        )

    async def delete(self, plural: str, namespace: str, name: str, *, grace: int | None = 0) -> None:
        """`kubectl delete`; grace 0 removes a running pod at once."""
        options: Json = {} if grace is None else {"gracePeriodSeconds": grace}
        await self.verbs.delete(self.resource(plural), (namespace, name), options, "kubernetes-admin")

    def object(self, plural: str, namespace: str, name: str) -> Json | None:
        """An object as stored; None: there is none."""
        return self.store.shelf(self.resource(plural).store_key).objects.get((namespace, name))

    def objects(self, plural: str, group: str | None = None) -> list[Json]:
        """All objects of a resource."""
        return list(self.store.shelf(self.resource(plural, group).store_key).objects.values())

    # -- HTTP -------------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        watches = request.query_params.get("watch") in ("1", "true")
        self.requests.append(("WATCH" if watches else request.method, request.url.path))
        try:
            response = await self._answer(request)
        except ApiError as error:
            headers = {"retry-after": str(error.retry_after)} if error.retry_after is not None else {}
            response = JSONResponse(error.body, error.code, headers=headers)
        response.headers["date"] = formatdate(usegmt=True)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        user = self._user(request)
        fault = self.faults.take(request.method, request.url.path, dict(request.query_params))
        if fault is not None:
            if fault.seconds:
                await asyncio.sleep(fault.seconds)
            if fault.code:
                raise ApiError(fault.code, fault.message, retry_after=fault.retry_after)
        parts = [part for part in request.url.path.split("/") if part]
        if parts[:1] == ["version"]:
            return JSONResponse({"major": "1", "minor": "34", "gitVersion": "v1.34.0-emulated"})
        group, rest = ("", parts[1:]) if parts[:1] == ["api"] else (parts[1] if len(parts) > 1 else "", parts[2:])
        if parts[:1] in (["api"], ["apis"]) and len(rest) == 1:
            return JSONResponse(self.verbs.listed(group, rest[0]))
        if parts[:1] not in (["api"], ["apis"]) or len(rest) < 2:
            raise ApiError(404, "the server could not find the requested resource")
        version, rest = rest[0], rest[1:]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _SUBRESOURCES:
            namespace, rest = rest[1], rest[2:]
        resource = self.verbs.resources.get((group, version, rest[0]))
        if resource is None:
            raise ApiError(404, "the server could not find the requested resource")
        name = rest[1] if len(rest) > 1 else ""
        subresource = rest[2] if len(rest) > 2 else ""
        response = await self._serve(request, user, resource, namespace, name, subresource)
        if fault is not None and fault.lose_answer:
            raise ApiError(504, "the answer was lost")
        return response

    def _user(self, request: Request) -> User:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        user = self.users.get(token) if kind == "Bearer" else None
        if user is None:
            raise ApiError(401, "Unauthorized")
        return user

    async def _serve(
        self, request: Request, user: User, resource: Resource, namespace: str, name: str, subresource: str
    ) -> Response:
        watches = request.query_params.get("watch") in ("1", "true")
        verb = {
            "GET": "get" if name else ("watch" if watches else "list"),
            "POST": "create",
            "PUT": "update",
            "PATCH": "patch",
            "DELETE": "delete",
        }.get(request.method, "")
        asked = f"{resource.plural}/{subresource}" if subresource else resource.plural
        named = name or name_selected(request.query_params.get("fieldSelector", ""))
        if not user.may(verb, resource.group, asked, namespace, named):
            self.refused.append((user.name, verb, f"{asked}.{resource.group}", named))
            raise ApiError(
                403,
                f'{asked} is forbidden: User "{user.name}" cannot {verb} resource "{asked}" in API group '
                f'"{resource.group}"' + (f' in the namespace "{namespace}"' if namespace else " at the cluster scope"),
            )
        dry_run = "All" in request.query_params.getlist("dryRun")
        key = (namespace, name)
        match verb:
            case "get" if subresource == "scale":
                return JSONResponse(self.verbs.scale(resource, key))
            case "get":
                return JSONResponse(self.verbs.get(resource, key))
            case "list":
                return JSONResponse(self._list(request, resource, namespace))
            case "watch":
                return self._watch(request, resource, namespace)
            case "create" if subresource == "binding":
                return JSONResponse(await self.verbs.bind(key, await _body(request), user.name, dry_run=dry_run), 201)
            case "create" if subresource == "eviction":
                return JSONResponse(await self.verbs.evict(key, await _body(request), user.name, dry_run=dry_run), 201)
            case "create" if not name:
                document = await _body(request)
                created = await self.verbs.create(resource, namespace, document, user.name, dry_run=dry_run)
                return JSONResponse(created, 201)
            case "update" if subresource in ("", "status"):
                document = await _body(request)
                return JSONResponse(
                    await self.verbs.update(resource, key, subresource, document, user.name, dry_run=dry_run)
                )
            case "patch" if subresource in ("", "status"):
                content_type = request.headers.get("content-type", "").partition(";")[0]
                if content_type not in _PATCHES:
                    raise ApiError(415, f"the body of the request was in an unknown format: {content_type!r}")
                patch = await _json(request)
                manager = request.query_params.get("fieldManager", "")
                if content_type == APPLY_PATCH and not manager:
                    raise ApiError(422, "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value")
                changed = await self.verbs.patch(
                    resource, key, subresource, content_type, patch, user.name, dry_run=dry_run, manager=manager
                )
                return JSONResponse(changed)
            case "delete" if name and not subresource:
                raw = await request.body()
                options: Json = json.loads(raw) if raw else {}
                return JSONResponse(await self.verbs.delete(resource, key, options, user.name, dry_run=dry_run))
            case _:
                raise ApiError(405, "the server does not allow this method on the requested resource")

    def _selected(self, request: Request, resource: Resource, namespace: str) -> list[Json]:
        labels = request.query_params.get("labelSelector", "")
        fields = request.query_params.get("fieldSelector", "")
        objects = self.store.shelf(resource.store_key).objects
        return [
            objects[key]
            for key in sorted(objects)
            if (not namespace or key[0] == namespace) and matches(objects[key], labels, fields)
        ]

    def _list(self, request: Request, resource: Resource, namespace: str) -> Json:
        """A page. Later pages are of the same version as the first one, until its history is compacted."""
        limit = int(request.query_params.get("limit") or 0)
        token = request.query_params.get("continue")
        if token:
            version, remaining = self._pages.pop(token, (-1, []))
            if version < self.store.shelf(resource.store_key).compacted:
                raise ApiError(410, "The provided continue parameter is too old to display a consistent list result.")
        else:
            version, remaining = self.store.version, self._selected(request, resource, namespace)
        page = remaining[:limit] if limit else remaining
        meta: Json = {"resourceVersion": str(version)}
        if len(page) < len(remaining):
            following = secrets.token_hex(8)
            self._pages[following] = (version, remaining[limit:])
            meta["continue"] = following
            meta["remainingItemCount"] = len(remaining) - len(page)
        return {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": meta,
            "items": [{k: v for k, v in item.items() if k not in ("kind", "apiVersion")} for item in page],
        }

    def _watch(self, request: Request, resource: Resource, namespace: str) -> Response:
        asked = request.query_params.get("resourceVersion") or "0"
        if not asked.isdigit():
            raise ApiError(400, f"Invalid value: {asked!r}: resourceVersion")
        since = int(asked) or self.store.version
        if since < self.store.shelf(resource.store_key).compacted and self.expire_with_status:
            raise ApiError(410, f"too old resource version: {since}")
        return StreamingResponse(self._events(request, resource, namespace, since), media_type="application/json")

    async def _events(self, request: Request, resource: Resource, namespace: str, since: int) -> AsyncIterator[bytes]:
        labels = request.query_params.get("labelSelector", "")
        fields = request.query_params.get("fieldSelector", "")
        bookmarks = request.query_params.get("allowWatchBookmarks") == "true"
        loop = asyncio.get_running_loop()
        until = loop.time() + float(request.query_params.get("timeoutSeconds") or 3600)
        bookmark_at = loop.time() + self.bookmark_seconds
        shelf = self.store.shelf(resource.store_key)
        dropped = self.faults.dropped
        if since < shelf.compacted:
            yield _line("ERROR", status(410, f"too old resource version: {since} ({shelf.compacted})"))
            return
        self.watching[resource.plural] += 1
        try:
            while loop.time() < until and not dropped.is_set() and not self._stopping.is_set():
                changed = shelf.changed
                lines: list[bytes] = []
                for change in self.store.since(resource.store_key, since):
                    since = change.version
                    if namespace and (change.object["metadata"].get("namespace") or "") != namespace:
                        continue
                    is_now = change.type != "DELETED" and matches(change.object, labels, fields)
                    was = change.before is not None and matches(change.before, labels, fields)
                    kind = ("MODIFIED" if was else "ADDED") if is_now else ("DELETED" if was else "")
                    if kind:
                        lines.append(_line(kind, self.verbs.shown(resource, change.object)))
                if lines:
                    yield b"".join(lines)
                    continue
                if bookmarks and loop.time() >= bookmark_at:
                    bookmark_at = loop.time() + self.bookmark_seconds
                    since = max(since, self.store.version)
                    mark: Json = {"kind": resource.kind, "apiVersion": resource.api_version}
                    mark["metadata"] = {"resourceVersion": str(since), "creationTimestamp": None}
                    yield _line("BOOKMARK", mark)
                    self.bookmarked[resource.plural] = since
                waiting = [asyncio.ensure_future(event.wait()) for event in (changed, dropped, self._stopping)]
                await asyncio.wait(
                    waiting, timeout=min(until, bookmark_at) - loop.time(), return_when=asyncio.FIRST_COMPLETED
                )
                for task in waiting:
                    task.cancel()
        finally:
            self.watching[resource.plural] -= 1

    def stop(self) -> None:
        """Ends all watches."""
        self._stopping.set()


def _line(kind: str, document: Json) -> bytes:
    return json.dumps({"type": kind, "object": document}, separators=(",", ":")).encode() + b"\n"


async def _json(request: Request) -> Any:
    try:
        return json.loads(await request.body())
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from error


async def _body(request: Request) -> Json:
    document = await _json(request)
    if not isinstance(document, dict):
        raise ApiError(400, "the body is not an object")
    return cast("Json", document)


@contextlib.asynccontextmanager
async def running_api_server(
    server: ApiServer | None = None, *, tls: TlsFiles | None = None, port: int = 0
) -> AsyncGenerator[ApiServer]:
    """Serves in the running loop on a loopback port; with TLS when files are given."""
    api = server or ApiServer()
    listener = socket.create_server(("127.0.0.1", port))
    chosen: int = listener.getsockname()[1]
    config = uvicorn.Config(
        api,
        log_level="error",
        lifespan="off",
        access_log=False,
        date_header=False,  # uvicorn's may be seconds old, that of Kubernetes is not
        timeout_keep_alive=60,
        timeout_graceful_shutdown=1,
        ssl_certfile=str(tls.server_certificate) if tls else None,
        ssl_keyfile=str(tls.server_key) if tls else None,
    )
    http = uvicorn.Server(config)
    http.install_signal_handlers = lambda: None  # pyright: ignore[reportAttributeAccessIssue]
    serving = asyncio.create_task(http._serve(sockets=[listener]))  # pyright: ignore[reportPrivateUsage]  # without signals
    while not http.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.005)
    api.url = f"{'https' if tls else 'http'}://127.0.0.1:{chosen}"
    api.ca_file = tls.ca if tls else None
    try:
        yield api
    finally:
        api.stop()
        http.should_exit = True
        http.force_exit = True
        await serving
        listener.close()
        await api.webhooks.close()


def query(**parameters: str | int) -> str:
    """`?a=b&c=d`."""
    return "?" + urlencode(parameters)
