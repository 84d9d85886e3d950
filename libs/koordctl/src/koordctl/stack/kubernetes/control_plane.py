"""A control plane of three processes on loopback: etcd, kube-apiserver and kube-controller-manager.

RBAC is on, anonymous requests are refused, and etcd accepts only the API server's certificate. Tokens and keys lie
below the folder with mode 0600 and survive a restart. The controllers that expect live kubelets are off.

`specs` declares the processes for a `Supervisor`, or for tests that start them one by one. Next module: installing.py.
"""

import contextlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from koordcore.bus.setup.tls_files import TlsFiles, ensure_tls_files
from koordcore.embedded.ports import LOOPBACK
from koordcore.embedded.process import ProcessSpec
from koordcore.service.clock import SystemClock

from koordctl.stack.kubernetes.api import Access, write_kubeconfig, write_secret
from koordctl.stack.kubernetes.programs import ADMIN, API_SERVER, CONTROLLERS, ETCD, Programs

START_SECONDS: Final = 180.0
"""The API server needs some seconds, and more on a busy machine."""
PORTS: Final[tuple[str, ...]] = ("etcd", "etcd-peer", "etcd-health", "kube-apiserver", "kube-controller-manager")
KUBELETS: Final = "koord-kubelets"
_CONTROLLER_USER: Final = "system:kube-controller-manager"
_USERS: Final = {ADMIN: "system:masters", _CONTROLLER_USER: "", KUBELETS: ""}
"""User -> its group. RBAC gives the others their rights by name."""
_SWITCHED_OFF: Final = ("node-lifecycle-controller", "node-ipam-controller")
_SERVICES: Final = "10.0.0.0/16"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    folder: Path  # Folder of data, keys and kubeconfigs, as an absolute path
    logs: Path  # Folder of the logs
    programs: Programs
    ports: Mapping[str, int]  # Name -> port, for each of `PORTS`
    tls: TlsFiles  # Certificate authority, certificate of the servers, certificate of etcd's client
    tokens: Mapping[str, str]  # User -> bearer token

    @property
    def url(self) -> str:
        return f"https://{LOOPBACK}:{self.ports['kube-apiserver']}"

    def access(self, token: str) -> Access:
        return Access(url=self.url, ca=self.tls.ca.read_text(encoding="ascii"), token=token)

    @property
    def admin(self) -> Access:
        return self.access(self.tokens[ADMIN])

    def kubeconfig(self, name: str, token: str) -> Path:
        return write_kubeconfig(self.folder / f"{name}.kubeconfig", name, self.access(token))


def prepare(folder: Path, logs: Path, programs: Programs, ports: Mapping[str, int]) -> ControlPlane:
    """Make the missing keys, certificates and tokens of a control plane, and write its kubeconfigs."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    tls = ensure_tls_files(folder / "tls", now=SystemClock().now())
    plane = ControlPlane(
        folder=folder, logs=logs, programs=programs, ports=ports, tls=tls, tokens=_tokens(folder / "tokens.csv")
    )
    if not _signing_key(folder).exists():
        key = ec.generate_private_key(ec.SECP256R1())  # Kubernetes signs tokens with RSA or ECDSA keys only
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        write_secret(_signing_key(folder), pem.decode())
    for name, user in ((ADMIN, ADMIN), ("controllers", _CONTROLLER_USER), ("kubelets", KUBELETS)):
        plane.kubeconfig(name, plane.tokens[user])
    return plane


def _signing_key(folder: Path) -> Path:
    return folder / "accounts.key"


def _tokens(file: Path) -> dict[str, str]:
    """User -> token. Tokens that the file lacks are made and added."""
    found: dict[str, str] = {}
    with contextlib.suppress(FileNotFoundError):
        for line in file.read_text(encoding="ascii").splitlines():
            token, user = line.split(",")[:2]
            found[user] = token
    if not found.keys() >= _USERS.keys():
        found = {user: found.get(user) or secrets.token_urlsafe(32) for user in _USERS}
        lines = [f'{found[user]},{user},{user},"{group}"\n' for user, group in _USERS.items()]
        write_secret(file, "".join(lines))
    return found


def specs(plane: ControlPlane) -> list[ProcessSpec]:
    """The controller manager is ready when pods can be created."""
    health = f"http://{LOOPBACK}:{plane.ports['etcd-health']}"
    return [
        ProcessSpec(
            name=ETCD,
            argv=(str(plane.programs.etcd), *_etcd_flags(plane, health)),
            ready=f"{health}/health",
            ready_seconds=START_SECONDS,
            log_file=plane.logs / f"{ETCD}.log",
            ports={"client": plane.ports["etcd"]},
        ),
        ProcessSpec(
            name=API_SERVER,
            argv=(str(plane.programs.api_server), *_api_server_flags(plane)),
            ready=Probe(plane.admin, "/readyz").succeeds,
            ready_seconds=START_SECONDS,
            after=(ETCD,),
            log_file=plane.logs / f"{API_SERVER}.log",
            ports={"https": plane.ports["kube-apiserver"]},
            urls={"https": plane.url},
        ),
        ProcessSpec(
            name=CONTROLLERS,
            argv=(str(plane.programs.controllers), *_controller_flags(plane)),
            # A pod is accepted once its namespace has a ServiceAccount.
            ready=Probe(plane.admin, "/api/v1/namespaces/default/serviceaccounts/default").succeeds,
            ready_seconds=START_SECONDS,
            after=(API_SERVER,),
            log_file=plane.logs / f"{CONTROLLERS}.log",
            ports={"https": plane.ports["kube-controller-manager"]},
        ),
    ]


class Probe:
    """A readiness check: a GET to the API server. `holds`: condition on an answer with a status of 2xx."""

    def __init__(self, access: Access, path: str, holds: Callable[[httpx.Response], bool] = lambda _: True) -> None:
        self._access = access
        self._path = path
        self._holds = holds
        self._client: httpx.AsyncClient | None = None

    async def succeeds(self) -> bool:
        """False if there is no answer."""
        client = self._client = self._client or self._access.client()
        try:
            answer = await client.get(self._path)
        except httpx.HTTPError:
            return False
        good = answer.is_success and self._holds(answer)
        if good:
            await client.aclose()
            self._client = None
        return good


def _etcd_flags(plane: ControlPlane, health: str) -> tuple[str, ...]:
    client = f"https://{LOOPBACK}:{plane.ports['etcd']}"
    member = f"https://{LOOPBACK}:{plane.ports['etcd-peer']}"
    tls = plane.tls
    return (
        # The embedded stack may lose the last second in a power cut; see decision 0004.
        *("--data-dir", str(plane.folder / "etcd"), "--unsafe-no-fsync", "--log-level", "warn", "--name", "koord"),
        *("--listen-client-urls", client, "--advertise-client-urls", client, "--listen-metrics-urls", health),
        *("--listen-peer-urls", member, "--initial-advertise-peer-urls", member),
        *("--initial-cluster", f"koord={member}"),
        *("--client-cert-auth", "--trusted-ca-file", str(tls.ca)),
        *("--cert-file", str(tls.server_certificate), "--key-file", str(tls.server_key)),
        *("--peer-client-cert-auth", "--peer-trusted-ca-file", str(tls.ca)),
        *("--peer-cert-file", str(tls.server_certificate), "--peer-key-file", str(tls.server_key)),
    )


def _api_server_flags(plane: ControlPlane) -> tuple[str, ...]:
    tls, key = plane.tls, _signing_key(plane.folder)
    return (
        f"--etcd-servers=https://{LOOPBACK}:{plane.ports['etcd']}",
        *(f"--etcd-cafile={tls.ca}", f"--etcd-certfile={tls.client_certificate}", f"--etcd-keyfile={tls.client_key}"),
        *(f"--bind-address={LOOPBACK}", f"--advertise-address={LOOPBACK}", "--endpoint-reconciler-type=none"),
        f"--secure-port={plane.ports['kube-apiserver']}",
        *(f"--tls-cert-file={tls.server_certificate}", f"--tls-private-key-file={tls.server_key}"),
        *(f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"),
        *("--service-account-issuer=https://kubernetes.default.svc", f"--service-cluster-ip-range={_SERVICES}"),
        *("--authorization-mode=Node,RBAC", "--anonymous-auth=false"),
        *(f"--token-auth-file={plane.folder / 'tokens.csv'}", "--allow-privileged=true"),
    )


def _controller_flags(plane: ControlPlane) -> tuple[str, ...]:
    return (
        f"--kubeconfig={plane.folder / 'controllers.kubeconfig'}",
        *(f"--service-account-private-key-file={_signing_key(plane.folder)}", f"--root-ca-file={plane.tls.ca}"),
        *("--use-service-account-credentials=true", "--leader-elect=false"),
        f"--controllers=*,{','.join(f'-{name}' for name in _SWITCHED_OFF)}",
        *("--kube-api-qps=200", "--kube-api-burst=400"),
        *(f"--bind-address={LOOPBACK}", f"--secure-port={plane.ports['kube-controller-manager']}"),
    )
