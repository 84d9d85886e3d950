"""The processes that `koord up --kubernetes` adds to the stack, and what they change about the manager."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import httpx
from koordcore.embedded.errors import EmbeddedError
from koordcore.embedded.ports import LOOPBACK
from koordcore.embedded.process import ProcessSpec

from koordctl.stack.kubernetes.control_plane import ControlPlane, Probe, specs
from koordctl.stack.kubernetes.installing import NAMESPACE, install, manager_token
from koordctl.stack.kubernetes.kubelets import is_not_ready
from koordctl.stack.kubernetes.programs import API_SERVER, CONTROLLERS, Programs

KUBELETS: Final = "kubelets"
WEBHOOK_PORT: Final = "webhooks"
_RATE: Final = ("--rest-config-qps=1000", "--rest-config-burst=2000")
"""As in k8s/base/manager.yaml."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesPart:
    programs: Programs
    nodes: Path  # File with the Nodes to register
    names: tuple[str, ...]  # Names of these nodes


def kubernetes_specs(plane: ControlPlane, part: KubernetesPart, idle: Sequence[str]) -> list[ProcessSpec]:
    """The control plane, and the process that stands in for its kubelets. `idle`: nodes on which no pod runs."""
    flags = ("--kubeconfig", str(plane.folder / f"{KUBELETS}.kubeconfig"), "--nodes", str(part.nodes))
    kubelets = ProcessSpec(
        name=KUBELETS,
        argv=(
            *(sys.executable, "-m", "koordctl.stack.kubernetes.kubelets", *flags),
            *(word for name in idle for word in ("--idle", name)),
        ),
        ready=_last_is_ready(plane, part).succeeds if part.names else None,
        ready_seconds=60.0,
        after=("manager",),
        log_file=plane.logs / f"{KUBELETS}.log",
        env={"PYTHONUNBUFFERED": "1"},
    )
    return [*specs(plane), kubelets]


def _last_is_ready(plane: ControlPlane, part: KubernetesPart) -> Probe:
    """Whether pods may run on the last node. Nodes are registered in order."""
    return Probe(plane.admin, f"/api/v1/nodes/{part.names[-1]}", lambda answer: not is_not_ready(answer.json()))


def manager_flags(plane: ControlPlane) -> tuple[str, ...]:
    return (
        *("--kubeconfig", str(_manager_kubeconfig(plane)), "--leader-election-namespace", NAMESPACE, *_RATE),
        *("--webhooks", "on", "--webhook-address", LOOPBACK),
    )


def manager_environment(plane: ControlPlane, port: int) -> Mapping[str, str]:
    """The API server calls the webhooks at a URL, because it does not route Services."""
    return {
        "WEBHOOK_HOST": LOOPBACK,
        "WEBHOOK_PORT": str(port),
        "WEBHOOK_CERT_DIR": str(plane.folder / "webhook-certificates"),
    }


def with_objects(manager: ProcessSpec, plane: ControlPlane) -> ProcessSpec:
    """The manager's process, which installs its objects and gets its token before each start."""

    async def prepare() -> None:
        try:
            async with plane.admin.client() as client:
                await install(client)
                plane.kubeconfig("manager", await manager_token(client))
        except httpx.HTTPError as error:
            raise EmbeddedError(f"kube-apiserver: {type(error).__name__}: {error}") from error

    return replace(manager, after=(*manager.after, API_SERVER, CONTROLLERS), prepare=prepare)


def _manager_kubeconfig(plane: ControlPlane) -> Path:
    return plane.folder / "manager.kubeconfig"
