"""Where leases are kept: memory, a bucket of a real NATS server, the part of an API server that leases need."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import pytest
from koordcore.service.clock import SystemClock
from koordcore.service.health import Health
from koordcore.service.leader import lease_kv
from koordcore.service.leader.lease import LeaseConflict, LeaseRecord, SeenLease, WrittenLease
from koordcore.service.lifecycle import Service
from koordcore.service.settings import ServiceSettings
from koordcore.service.telemetry.metrics import Metrics
from koordcore.service.web.http import HttpServer
from nats.js import JetStreamContext
from nats.js.api import KeyValueConfig
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from support.bus.plain_client import plain_client
from support.until import DEADLINE_SECONDS


class MemoryLeaseStore:
    """A lease in memory; several candidates share one."""

    def __init__(self) -> None:
        self.seen = SeenLease(None, "0")
        self.revision = 0

    async def read(self) -> SeenLease:
        return self.seen

    async def write(self, record: LeaseRecord, version: str, *, acquiring: bool) -> WrittenLease:
        if version != self.seen.version:
            raise LeaseConflict(version)
        self.revision += 1
        self.seen = SeenLease(record, str(self.revision))
        return WrittenLease(str(self.revision), record.epoch)


class FakeApiServer:
    """The part of an API server that leases need, with the rules of resourceVersion as documented.

    POST of an existing name: 409 AlreadyExists. PUT with another resourceVersion than the stored: 409 Conflict.
    PUT or GET of an absent name: 404. Each write gets a new, greater resourceVersion. Wrong token: 401.
    """

    def __init__(self, token: str) -> None:
        self.token = token
        self.objects: dict[str, dict[str, dict[str, object]]] = {}
        self.revision = 100

    def routes(self) -> list[Route]:
        base = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        return [
            Route(base, self.create, methods=["POST"]),
            Route(base + "/{name}", self.get, methods=["GET"]),
            Route(base + "/{name}", self.replace, methods=["PUT"]),
        ]

    async def create(self, request: Request) -> Response:
        lease = await self._lease(request)
        if isinstance(lease, Response):
            return lease
        key = f"{request.path_params['namespace']}/{lease['metadata']['name']}"
        if lease["metadata"].get("resourceVersion"):
            return self._status(400, "resourceVersion must not be set on objects to be created")
        if key in self.objects:
            return self._status(409, "AlreadyExists")
        return self._store(key, lease, 201)

    async def get(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return self._status(401, "Unauthorized")
        lease = self.objects.get(f"{request.path_params['namespace']}/{request.path_params['name']}")
        return self._status(404, "NotFound") if lease is None else JSONResponse(lease)

    async def replace(self, request: Request) -> Response:
        lease = await self._lease(request)
        if isinstance(lease, Response):
            return lease
        key = f"{request.path_params['namespace']}/{request.path_params['name']}"
        if key not in self.objects:
            return self._status(404, "NotFound")
        if lease["metadata"].get("resourceVersion") != self.objects[key]["metadata"]["resourceVersion"]:
            return self._status(409, "Conflict: the object has been modified")
        return self._store(key, lease, 200)

    async def _lease(self, request: Request) -> "dict[str, dict[str, object]] | Response":
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return self._status(401, "Unauthorized")
        lease = json.loads(await request.body())
        spec = lease["spec"]
        if lease["kind"] != "Lease" or lease["apiVersion"] != "coordination.k8s.io/v1":
            return self._status(400, "not a Lease")
        if spec.get("holderIdentity") == "" or int(spec["leaseDurationSeconds"]) <= 0 or spec["leaseTransitions"] < 0:
            return self._status(422, f"Invalid: {spec}")
        return lease

    def _store(self, key: str, lease: dict[str, dict[str, object]], status: int) -> Response:
        self.revision += 1
        lease["metadata"]["resourceVersion"] = str(self.revision)
        lease["metadata"].setdefault("uid", f"uid-{self.revision}")
        self.objects[key] = lease
        return JSONResponse(lease, status)

    def _status(self, code: int, message: str) -> Response:
        return JSONResponse({"kind": "Status", "status": "Failure", "code": code, "message": message}, code)


class ApiSettings(ServiceSettings):
    """Only to serve the API server."""

    service: ClassVar[str] = "apiserver"


@asynccontextmanager
async def api_server(token_file: Path) -> AsyncGenerator[tuple[FakeApiServer, str]]:
    token_file.write_text("t0ken\n")  # noqa: ASYNC240  one word
    api = FakeApiServer("t0ken")
    health = Health()
    http = HttpServer(
        ApiSettings.model_validate({}),
        service=Service("apiserver", health=health),
        health=health,
        metrics=Metrics("apiserver"),
        clock=SystemClock(),
    )
    http.routes.extend(api.routes())
    await http.start()
    try:
        yield api, http.url
    finally:
        await http.stop()


@asynccontextmanager
async def kv_bucket(url: str, name: str, *, limit_marker_ttl: float | None = None) -> AsyncGenerator[JetStreamContext]:
    """A bucket for leases. Its answers are waited for as long as any test waits, because clocks may stand still."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lease_kv, "_PUBLISH_REAL_SECONDS", DEADLINE_SECONDS)
        async with plain_client(url) as client:
            # The library leaves the types of its options open, hence the remarks to the type checker.
            js = client.jetstream(timeout=DEADLINE_SECONDS)  # pyright: ignore[reportUnknownMemberType]
            config = KeyValueConfig(bucket=name, history=1, limit_marker_ttl=limit_marker_ttl)
            await js.create_key_value(config)  # pyright: ignore[reportUnknownMemberType]
            yield js
            await js.delete_key_value(name)
