"""The dashboard's files, served without a build step. Pages request nothing from other hosts.

The content security policy allows only our own script and style files. So text from the cluster cannot become code,
even if a page does not escape it.
"""

import hashlib
import html
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_JAEGER: Final = b"@JAEGER@"
"""Stands for the address of Jaeger in `index.html`."""
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


class Dashboard:
    """The files of the dashboard. They are kept in memory, so that requests never read from disk.

    `jaeger`: address of Jaeger, to whose page of a trace the pages link; "": no links.
    """

    def __init__(self, jaeger: str) -> None:
        root = files("koord_projector") / "dashboard"
        self._files: dict[str, tuple[bytes, str, str]] = {}
        for folder in (root, root / "views", root / "vendor"):
            for entry in folder.iterdir():
                suffix = "." + entry.name.rpartition(".")[2]
                if entry.is_file() and suffix in _TYPES:
                    name = entry.name if folder is root else f"{folder.name}/{entry.name}"
                    content = entry.read_bytes().replace(_JAEGER, html.escape(jaeger).encode())
                    digest = hashlib.blake2b(content, digest_size=8).hexdigest()
                    self._files[name] = (content, _TYPES[suffix], f'"{digest}"')

    def routes(self) -> list[Route]:
        return [
            Route("/", self.page, methods=["GET"]),
            Route("/assets/{name:path}", self.asset, methods=["GET"]),
        ]

    async def page(self, request: Request) -> Response:
        """The only HTML page. The part of the URL after `#` selects the view."""
        return self._serve(request, "index.html")

    async def asset(self, request: Request) -> Response:
        return self._serve(request, request.path_params["name"])

    def _serve(self, request: Request, name: str) -> Response:
        found = self._files.get(name)
        if found is None:
            return Response("no such file\n", 404, media_type="text/plain")
        content, media_type, tag = found
        headers = {
            "content-security-policy": POLICY,
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cache-control": "no-cache",
            "etag": tag,
        }
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=media_type)
