"""Create the objects that the manager needs on an embedded control plane, and the token of its ServiceAccount.

The rights and webhooks are those of k8s/base. Next module: kubelets.py.
"""

from collections.abc import Iterable, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final, cast

import httpx
from koordcore.protocol.crd.catalogue import definition_texts
from koordcore.protocol.manifests import read_documents
from koordcore.service.leader.lease_kubernetes import KubernetesLeaseStore

from koordctl.stack.kubernetes.api import APPLY_PATCH, AccessHttp, Manifest, read_kubeconfig, require_success
from koordctl.stack.kubernetes.control_plane import KUBELETS
from koordctl.stack.kubernetes.programs import admin_kubeconfig

NAMESPACE: Final = "koordinator-system"
MANAGER: Final = "koord-manager"
LEASE: Final = "koordinator-manager"
TOKEN_SECONDS: Final = 365 * 24 * 3600
"""The stack requests a new token at each start of the manager."""
_FILES: Final = (
    "namespace.yaml",
    "priorityclasses.yaml",
    "serviceaccounts.yaml",
    "manager-role.yaml",
    "scales-role.yaml",
    "manager-namespace-role.yaml",
    "rolebindings.yaml",
)
_WEBHOOKS: Final = "webhooks.yaml"
_CONFLICT: Final = 409
_OWNER: Final = {"fieldManager": "koord-up", "force": "true"}
_RBAC: Final = "rbac.authorization.k8s.io"
_NAMESPACED: Final = ("ServiceAccount", "Role", "RoleBinding")

KUBELETS_RIGHTS: Final[tuple[Manifest, ...]] = (
    {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": KUBELETS},
        "rules": [
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["create", "patch"]},
            {"apiGroups": [""], "resources": ["nodes/status", "pods/status"], "verbs": ["patch"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch", "delete"]},
        ],
    },
    {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": KUBELETS},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": KUBELETS},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": KUBELETS}],
    },
)
"""Rights of the process that stands in for kubelets."""


def _base() -> Traversable:
    """The folder k8s/base: in a wheel a copy lies in the package, in a checkout it is that of the checkout."""
    packaged = files("koordctl") / "k8s"
    return packaged if packaged.is_dir() else Path(__file__).parents[6] / "k8s" / "base"


def _documents(texts: Iterable[str]) -> list[Manifest]:
    return [cast("Manifest", document) for text in texts for document in read_documents(text.encode())]


async def install(client: httpx.AsyncClient) -> None:
    """Apply CRDs, namespace, rights and priority classes, and create the webhooks if they are absent.

    Webhooks are not applied again, because the manager owns their addresses.

    Raises:
        EmbeddedError: The API server refused an object.
        httpx.HTTPError: The API server does not answer.
    """
    base = _base()
    applied = _documents((*(_text(base, name) for name in _FILES), *definition_texts().values()))
    for document in (*applied, *KUBELETS_RIGHTS):
        answer = await client.patch(
            object_path(document), json=document, params=_OWNER, headers={"content-type": APPLY_PATCH}
        )
        require_success(answer)
    for document in _documents([_text(base, _WEBHOOKS)]):
        answer = await client.post(object_path(document).rpartition("/")[0], json=document)
        if answer.status_code != _CONFLICT:
            require_success(answer)


def _text(folder: Traversable, name: str) -> str:
    return (folder / name).read_text(encoding="utf-8")


def object_path(document: Mapping[str, object]) -> str:
    """The path of an object of `install` at the API server; namespaced ones lie in `NAMESPACE`."""
    version, kind = str(document["apiVersion"]), str(document["kind"])
    name = cast("Mapping[str, object]", document["metadata"])["name"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    where = f"/namespaces/{NAMESPACE}" if kind in _NAMESPACED else ""
    plural = f"{kind.lower()}es" if kind.endswith("s") else f"{kind.lower()}s"
    return f"{root}{where}/{plural}/{name}"


async def manager_token(client: httpx.AsyncClient) -> str:
    """A new token of the manager's ServiceAccount.

    Raises:
        EmbeddedError: The API server refused it.
        httpx.HTTPError: The API server does not answer.
    """
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{MANAGER}/token"
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": TOKEN_SECONDS},
    }
    return str(require_success(await client.post(path, json=request)).json()["status"]["token"])


def manager_lease(folder: Path) -> KubernetesLeaseStore:
    http = AccessHttp(read_kubeconfig(admin_kubeconfig(folder)))
    return KubernetesLeaseStore(http, namespace=NAMESPACE, name=LEASE)
