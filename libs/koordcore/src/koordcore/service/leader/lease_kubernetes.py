"""A lease as a Kubernetes object: `coordination.k8s.io/v1` Lease, guarded by its resourceVersion.

Requests go through the protocol `KubernetesHttp`, so that a Kubernetes client can be used instead of httpx.

Source: https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/lease-v1/; client-go's LeaseLock.
"""

import math
import os
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from koordcore.ports.clock import Clock
from koordcore.service.leader import lease as leases
from koordcore.service.leader.election import LeaseElection

if TYPE_CHECKING:
    import httpx

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_REQUEST_REAL_SECONDS: Final = 5.0
_OK, _CREATED, _NOT_FOUND, _CONFLICT = 200, 201, 404, 409


class KubernetesHttp(Protocol):
    """HTTP client for a Kubernetes API server, as far as leases need it."""

    async def request(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """Send a request with a JSON body (None: no body), and return HTTP status and body of the answer.

        Raises:
            LeaseUnavailable: There is no answer.
        """
        ...


class ServiceAccountHttp:
    """HTTP client for the API server with the token and the CA file that Kubernetes mounts into a pod. The token is
    read for every request, because Kubernetes rotates it.

    Args:
        base_url: URL of the API server, without a path.
        ca_file: Authorities of its certificate; None: those of the system.
        token_file: File with the token; None: requests without a token.
    """

    def __init__(self, base_url: str, *, ca_file: Path | None, token_file: Path | None) -> None:
        self._base_url = base_url
        self._ca_file = ca_file
        self._token_file = token_file
        self._client: httpx.AsyncClient | None = None

    @classmethod
    def in_cluster(cls) -> "ServiceAccountHttp":
        """Return a client that uses the environment variables and files of this pod.

        Raises:
            LeaseUnavailable: This process does not run in a pod.
        """
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise leases.LeaseUnavailable("KUBERNETES_SERVICE_HOST is not set: not in a cluster")
        shown = f"[{host}]" if ":" in host else host
        return cls(f"https://{shown}:{port}", ca_file=SERVICE_ACCOUNT / "ca.crt", token_file=SERVICE_ACCOUNT / "token")

    async def request(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """Send one request with the token of the service account, and return status and body.

        Raises:
            LeaseUnavailable: The API server did not answer, or the token or a certificate cannot be read.
        """
        import httpx

        try:
            if self._client is None:
                verify = ssl.create_default_context(cafile=self._ca_file) if self._ca_file else True
                self._client = httpx.AsyncClient(
                    base_url=self._base_url, verify=verify, timeout=_REQUEST_REAL_SECONDS, trust_env=False
                )
            headers = {"content-type": "application/json", "accept": "application/json"}
            if self._token_file is not None:
                headers["authorization"] = f"Bearer {_read_token(self._token_file)}"
            answer = await self._client.request(method, path, content=body, headers=headers)
        except (httpx.HTTPError, OSError) as error:
            raise leases.LeaseUnavailable(f"{method} {path}: {type(error).__name__}: {error}") from error
        return answer.status_code, answer.content

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None


def _read_token(file: Path) -> str:
    return file.read_text(encoding="ascii").strip()


class _Spec(msgspec.Struct, omit_defaults=True, rename="camel"):
    """Fields of a Lease's spec that are used. Each may be absent."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Metadata(msgspec.Struct, omit_defaults=True, rename="camel"):
    """Fields of an object's metadata that are written. Labels, annotations and owners are kept."""

    name: str
    namespace: str
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[dict[str, object]] | None = None


class _Lease(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


class KubernetesLeaseStore:
    """One `coordination.k8s.io/v1` Lease object as storage of a lease. The epoch is `leaseTransitions` + 1. If the
    object is deleted, the epoch starts again for a candidate that has not seen the object before. Appends to the log
    stay safe, because they name expected positions.
    """

    def __init__(self, http: KubernetesHttp, *, namespace: str, name: str) -> None:
        self._http = http
        self._all = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._one = f"{self._all}/{name}"
        self._metadata = _Metadata(name=name, namespace=namespace)

    async def read(self) -> leases.SeenLease:
        """Read the Lease object. If it does not exist, the record is None and the version is empty."""
        status, body = await self._http.request("GET", self._one, None)
        if status == _NOT_FOUND:
            self._metadata = _Metadata(name=self._metadata.name, namespace=self._metadata.namespace)
            return leases.SeenLease(None, "")
        if status != _OK:
            raise leases.LeaseUnavailable(_refused("GET", self._one, status, body))
        lease = _decode(body)
        self._metadata = lease.metadata
        spec = lease.spec
        record = leases.LeaseRecord(
            holder=spec.holder_identity or "",
            epoch=(spec.lease_transitions or 0) + 1,
            acquired_at_unix=_unix(spec.acquire_time),
            renewed_at_unix=_unix(spec.renew_time),
            duration_seconds=float(spec.lease_duration_seconds or 0),
        )
        return leases.SeenLease(record, lease.metadata.resource_version)

    async def write(self, record: leases.LeaseRecord, version: str, *, acquiring: bool) -> leases.WrittenLease:
        """Replace the Lease object at this version, or create it for an empty version. A release leaves out
        `holderIdentity`, as client-go does.
        """
        self._metadata.resource_version = version
        spec = _Spec(
            holder_identity=record.holder or None,
            lease_duration_seconds=max(1, math.ceil(record.duration_seconds)),
            acquire_time=_micro_time(record.acquired_at_unix),
            renew_time=_micro_time(record.renewed_at_unix),
            lease_transitions=record.epoch - 1,
        )
        body = msgspec.json.encode(_Lease(metadata=self._metadata, spec=spec))
        method, path = ("PUT", self._one) if version else ("POST", self._all)
        status, answer = await self._http.request(method, path, body)
        if status == _CONFLICT or (status == _NOT_FOUND and version):
            raise leases.LeaseConflict(_refused(method, path, status, answer))
        if status not in (_OK, _CREATED):
            raise leases.LeaseUnavailable(_refused(method, path, status, answer))
        self._metadata = _decode(answer).metadata
        return leases.WrittenLease(self._metadata.resource_version, record.epoch)


def _decode(body: bytes) -> _Lease:
    try:
        return msgspec.json.decode(body, type=_Lease)
    except msgspec.DecodeError as error:
        raise leases.LeaseUnavailable(f"the API server's answer is not a Lease: {error}") from error


def _refused(method: str, path: str, status: int, body: bytes) -> str:
    return f"{method} {path}: {status} {body[:200].decode(errors='replace')}"


def _micro_time(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _unix(text: str | None) -> float:
    try:
        return datetime.fromisoformat(text).timestamp() if text else 0.0
    except ValueError:
        return 0.0  # informative only: expiry is counted from when a version was first seen


class LeaseLeadership(LeaseElection):
    """Leader election with a `coordination.k8s.io/v1` Lease object, which `kubectl get lease` shows.

    Args:
        http: Client for the API server; None: use the service account's files of the pod.
    """

    def __init__(
        self,
        *,
        namespace: str,
        name: str,
        holder: str,
        clock: Clock,
        http: KubernetesHttp | None = None,
        times: leases.LeaseTimes | None = None,
        jitter: Random | None = None,
        must_not_lead: Callable[[], str | None] = lambda: None,
    ) -> None:
        store = KubernetesLeaseStore(http or ServiceAccountHttp.in_cluster(), namespace=namespace, name=name)
        super().__init__(store, holder=holder, clock=clock, times=times, jitter=jitter, must_not_lead=must_not_lead)
