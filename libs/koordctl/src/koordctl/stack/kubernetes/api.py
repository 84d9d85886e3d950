"""Requests to the API server of an embedded control plane, with the credentials in a kubeconfig.

`control_plane` writes the kubeconfigs. `installing` and `kubelets` send the requests.
"""

import base64
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from koordcore.embedded.errors import EmbeddedError
from koordcore.service.leader.lease import LeaseUnavailable
from koordcore.values.yaml_text import dump_yaml, load_yaml

Manifest = dict[str, Any]

REQUEST_SECONDS: Final = 30.0
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    url: str  # Base URL
    ca: str  # Certificates of the authority as PEM text
    token: str  # Bearer token

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self.url,
            verify=ssl.create_default_context(cadata=self.ca),
            headers={"authorization": f"Bearer {self.token}"},
            timeout=REQUEST_SECONDS,
            trust_env=False,
        )


class AccessHttp:
    """The HTTP client of leases (`KubernetesHttp`), over a connection per request."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def request(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """Raise LeaseUnavailable if the API server does not answer."""
        try:
            async with self._access.client() as client:
                answer = await client.request(method, path, content=body)
        except httpx.HTTPError as error:
            raise LeaseUnavailable(f"{method} {path}: {type(error).__name__}: {error}") from error
        return answer.status_code, answer.content


def write_kubeconfig(file: Path, name: str, access: Access) -> Path:
    """Write the kubeconfig of a user with mode 0600. It refers to no other file."""
    authority = base64.b64encode(access.ca.encode()).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "koord", "cluster": {"server": access.url, "certificate-authority-data": authority}},
        ],
        "users": [{"name": name, "user": {"token": access.token}}],
        "contexts": [{"name": "koord", "context": {"cluster": "koord", "user": name}}],
        "current-context": "koord",
    }
    write_secret(file, dump_yaml(document))
    return file


def read_kubeconfig(file: Path) -> Access:
    """From a file that `write_kubeconfig` wrote."""
    document = load_yaml(file.read_text(encoding="utf-8"))
    cluster = document["clusters"][0]["cluster"]
    ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
    return Access(url=cluster["server"], ca=ca, token=document["users"][0]["user"]["token"])


def write_secret(file: Path, text: str) -> None:
    """Replace a file by one with mode 0600. Other users can never read it, not even for a moment."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
        opened.write(text)
    fresh.replace(file)


async def patch(client: httpx.AsyncClient, path: str, content_type: str, body: Mapping[str, Any]) -> httpx.Response:
    """Return the answer, whatever its status."""
    return await client.patch(path, json=body, headers={"content-type": content_type})


def require_success(answer: httpx.Response) -> httpx.Response:
    """Return the answer if its status is 2xx.

    Raises:
        EmbeddedError: The status is another one. The message has request, status and text.
    """
    if not answer.is_success:
        request = answer.request
        text = answer.text.strip()[:300]
        raise EmbeddedError(f"kube-apiserver: {request.method} {request.url.path}: {answer.status_code} {text}")
    return answer
