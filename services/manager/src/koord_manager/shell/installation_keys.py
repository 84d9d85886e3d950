"""Keys of an installation as Secrets: the folder `scheduler/` of `koord keys` is the Secret `koord-scheduler`.

Each run reads the Secrets into a folder, adds keys that are missing and renews certificates that end soon, and writes
the changed Secrets. `koord_manager.cluster_commands` connects it to an API server.

`koord keys issue --service-account` checks the token of an agent's service account by the API server, which knows the
node of the pod with this token. The kubelet renews the token in the pod; the token ends with the pod.

Source:
    event-bus spec, 10; Kubernetes TokenReview (authentication.k8s.io/v1), KEP-4193 (node of bound tokens)
"""

import asyncio
import base64
import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, cast

from koordcore.bus.setup.installation import Installation, write_installation
from koordcore.bus.setup.issuing import AUDIENCE, LONGEST, NodeToken, Refused, Unchecked, claims_of
from koordcore.service.access.static_tokens import ensure_access_files
from koordcore.values import codec

from koord_manager.shell.gateway.api import ApiResponse, Unreachable

PREFIX: Final = "koord-"
NODE_FOLDERS: Final = ("agent", "criproxy")
"""Folders whose Secrets belong into the namespace of the node parts."""


class NotKept(Exception):
    """Raised if the API server refused to show or to store a Secret. The message says which one, and why."""


class RequestsApi(Protocol):
    async def request(self, method: str, path: str, *, body: object = None) -> ApiResponse: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySecrets:
    api: RequestsApi
    installation: Installation  # The installation that uses the keys; its folder is a temporary copy of the Secrets
    namespace: str  # Namespace of the servers and services
    node_namespace: str  # Namespace of the agents and CRI proxies

    async def keep(self, now: datetime.datetime) -> tuple[str, ...]:
        """Bring all Secrets up to date, and return the names of those that were written.

        If another process writes at the same time, the API server refuses the later write. Then call this method again.

        Args:
            now: The time in UTC, which decides about the renewal of certificates.

        Raises:
            NotKept: The API server refused a request.
            Unreachable: The API server does not answer.
        """
        folders = self.installation.folders
        found = {folder: await self._read(folder) for folder in folders}
        for folder, secret in found.items():
            await asyncio.to_thread(_write_files, self.installation.directory / folder, secret)
        await asyncio.to_thread(write_installation, self.installation, now)
        await asyncio.to_thread(ensure_access_files, self.installation.directory)
        written: list[str] = []
        for folder in folders:
            data = await asyncio.to_thread(_encoded, self.installation.directory / folder)
            if data != found[folder].get("data"):
                await self._write(folder, {**found[folder], "data": data})
                written.append(PREFIX + folder)
        return tuple(written)

    def _collection(self, folder: str) -> str:
        namespace = self.node_namespace if folder in NODE_FOLDERS else self.namespace
        return f"/api/v1/namespaces/{namespace}/secrets"

    async def _read(self, folder: str) -> dict[str, Any]:
        """Return a Secret as the API server shows it, or {} if it does not exist."""
        path = f"{self._collection(folder)}/{PREFIX}{folder}"
        answer = await self.api.request("GET", path)
        if answer.status == 404:
            return {}
        if not answer.ok:
            raise NotKept(f"GET {path}: {answer.status} {answer.message()}")
        return codec.decode(answer.body, dict[str, Any])

    async def _write(self, folder: str, secret: dict[str, Any]) -> None:
        collection, name = self._collection(folder), PREFIX + folder
        if "metadata" in secret:
            method, path = "PUT", f"{collection}/{name}"
        else:
            method, path = "POST", collection
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, **secret}
        answer = await self.api.request(method, path, body=secret)
        if not answer.ok:
            raise NotKept(f"{method} {path}: {answer.status} {answer.message()}")


def _write_files(folder: Path, secret: Mapping[str, Any]) -> None:
    """Write the entries of a Secret as files that only this user can read."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    data: dict[str, str] = secret.get("data") or {}
    for name, text in data.items():
        file = folder / name
        file.touch(mode=0o600)
        file.write_bytes(base64.b64decode(text))


def _encoded(folder: Path) -> dict[str, str]:
    return {file.name: base64.b64encode(file.read_bytes()).decode() for file in sorted(folder.iterdir())}


PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
NODE: Final = "authentication.kubernetes.io/node-name"
"""Key of the extra field with the node of the pod that the token is bound to."""


class TokenReviews:
    """Checks tokens by an API server.

    Args:
        api: Client of the API server; it needs the right to create TokenReviews.
        service_account: Service account of the agents, `namespace/name`.
    """

    def __init__(self, api: RequestsApi, service_account: str) -> None:
        self._api = api
        self._user = f"system:serviceaccount:{service_account.replace('/', ':', 1)}"

    async def check(self, token: str) -> NodeToken:
        """Return the node of the pod that a token is bound to, and when the token ends.

        Raises:
            Refused: The token is not valid, is of another service account or audience, is not bound to a pod on a
                node, is valid for longer than 24 hours, or the API server does not answer.
        """
        if not token:
            raise Refused("the client has no token")
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [AUDIENCE]},
        }
        try:
            answer = await self._api.request("POST", PATH, body=review)
        except Unreachable as error:
            raise Unchecked("the API server does not answer") from error
        if not answer.ok:
            raise Unchecked(f"TokenReview: {answer.status} {answer.message()}")
        status: dict[str, Any] = codec.decode(answer.body, dict[str, Any]).get("status") or {}
        if status.get("authenticated") is not True or AUDIENCE not in (status.get("audiences") or ()):
            raise Refused("the API server does not know the token, or it is for another audience")
        user = cast("dict[str, Any]", status.get("user") or {})
        if user.get("username") != self._user:
            raise Refused(f"the token is of {user.get('username')}, not of {self._user}")
        nodes = cast("dict[str, list[str]]", user.get("extra") or {}).get(NODE) or []
        if len(nodes) != 1:
            raise Refused("the token is not bound to a pod on a node")
        claims = claims_of(token)
        if int(claims["exp"]) - int(claims["iat"]) > LONGEST.total_seconds():
            raise Refused("the token is valid for longer than 24 hours")
        return NodeToken(nodes[0], int(claims["exp"]))
