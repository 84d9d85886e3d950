"""A real kube-scheduler beside a control plane, with the rights that Kubernetes has for it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from koordcore.embedded.ports import LOOPBACK, free_ports
from koordcore.embedded.process import NEVER_RESTART, ChildProcess, ProcessSpec
from support.kubernetes.control_plane import TOOLS, ControlPlane

PROGRAM: Final = TOOLS / "kube-scheduler"


@asynccontextmanager
async def kube_scheduler(plane: ControlPlane) -> AsyncGenerator[None]:
    """Run kube-scheduler until the context ends."""
    account = ("kube-scheduler", "-n", "kube-system")
    plane.kubectl("create", "serviceaccount", *account)
    for role in ("system:kube-scheduler", "system:volume-scheduler"):
        name = role.replace("system:", "test-")
        subject = "--serviceaccount=kube-system:kube-scheduler"
        plane.kubectl("create", "clusterrolebinding", name, f"--clusterrole={role}", subject)
    kubeconfig = plane.kubeconfig("kube-scheduler", plane.token("kube-scheduler", "kube-system"))
    (port,) = free_ports(1)
    address = (f"--bind-address={LOOPBACK}", f"--secure-port={port}")
    spec = ProcessSpec(
        name="kube-scheduler",
        argv=(str(PROGRAM), f"--kubeconfig={kubeconfig}", "--leader-elect=false", *address),
        log_file=plane.directory / "kube-scheduler.log",
        restart=NEVER_RESTART,
    )
    process = ChildProcess(spec)
    await process.start()
    try:
        yield
    finally:
        await process.kill()
        plane.kubectl("delete", "clusterrolebinding", "test-kube-scheduler", "test-volume-scheduler")
        plane.kubectl("delete", "serviceaccount", *account)
