"""A service that serves HTTP with an access file, as its tests and those of the login need it."""

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import httpx
import yaml
from koordcore.bus.adapters.memory import MemoryObservationLog
from koordcore.events import CATALOGUE
from koordcore.events.admission import RequestAudited
from koordcore.service.access.gate import OBJECTS
from koordcore.service.access.needs import Role
from koordcore.service.access.static_tokens import StaticToken, digest_of, new_token, read_tokens, write_tokens
from koordcore.service.run import Shell
from koordcore.service.settings import ServiceSettings
from koordctl.access.folding import everything_kept
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from support.running_service import running_service
from support.until import DEADLINE_SECONDS


class GuardedSettings(ServiceSettings):
    """A service without fields of its own."""

    service: ClassVar[str] = "guarded"


@dataclass
class Guarded:
    """A running service behind the gate.

    Attributes:
        shell: Its parts.
        client: A client without credentials.
        stream: The stream of audit records.
        objects: What a request that changes something concerns. Tests replace it.
    """

    shell: Shell[GuardedSettings]
    client: httpx.AsyncClient
    stream: MemoryObservationLog
    objects: list[str]

    async def records(self) -> list[RequestAudited]:
        """Return the audit records so far, oldest first."""
        events = [CATALOGUE.read(stored) for stored in await everything_kept(self.stream)]
        return [event for event in events if isinstance(event, RequestAudited)]

    async def get(self, token: str = "", path: str = "/api/pods", **headers: str) -> httpx.Response:
        """Send a GET with a token."""
        return await self.client.get(path, headers={**bearer(token), **headers})

    async def post(self, token: str = "", path: str = "/v1/apply", **headers: str) -> httpx.Response:
        """Send a POST with a token."""
        return await self.client.post(path, content=b"{}", headers={**bearer(token), **headers})


def bearer(token: str) -> dict[str, str]:
    """Return the header with a token; none for the empty one."""
    return {"authorization": f"Bearer {token}"} if token else {}


@dataclass
class AccessFolder:
    """A folder with an access file and a file of tokens."""

    folder: Path

    @property
    def file(self) -> Path:
        """The access file."""
        return self.folder / "access.yaml"

    @property
    def tokens(self) -> Path:
        """The file of tokens."""
        return self.folder / "tokens.yaml"

    def write(self, **settings: object) -> Path:
        """Write the access file, with the file of tokens."""
        self.file.write_text(yaml.safe_dump({"tokens_file": "tokens.yaml", **settings}))
        if not self.tokens.exists():
            write_tokens(self.tokens, {})
        return self.file

    def add(self, name: str, *roles: Role) -> str:
        """Add a static token, and return it."""
        token = new_token()
        kept = StaticToken(name=name, roles=roles, sha256=digest_of(token))
        write_tokens(self.tokens, {**(read_tokens(self.tokens) if self.tokens.exists() else {}), kept.sha256: kept})
        return token


@contextlib.asynccontextmanager
async def guarded(**settings: object) -> AsyncGenerator[Guarded]:
    """A service with one route of each kind, on the settings."""
    stream = MemoryObservationLog()

    async def read(_: Request) -> Response:
        return PlainTextResponse("pods")

    async def change(request: Request) -> Response:
        request.scope[OBJECTS] = run.objects
        return PlainTextResponse("applied")

    async def compose(shell: Shell[GuardedSettings]) -> None:
        shell.http.routes += [
            Route("/api/pods", read),
            Route("/", read),
            Route("/v1/apply", change, methods=["POST"]),
            Route("/not-declared", read),
        ]
        shell.http.audit.publish_to(stream)

    made = GuardedSettings.model_validate({"log_format": "json", **settings})
    async with (
        running_service(made, compose) as shell,
        httpx.AsyncClient(base_url=shell.http.url, trust_env=False, timeout=DEADLINE_SECONDS) as client,
    ):
        run = Guarded(shell, client, stream, ["Pod default/web"])
        yield run
