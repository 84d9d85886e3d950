"""A real kube-scheduler beside a control plane, with the rights that Kubernetes has for it."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from koordcore.embedded.ports import LOOPBACK, free_ports
from koordcore.embedded.process import NEVER_RESTART, ChildProcess, ProcessSpec
from support.kubernetes.control_plane import TOOLS, ControlPlane

PROGRAM: Final = TOOLS / "kube-scheduler"


@asynccontextmanager
async def kube_scheduler(plane: ControlPlane, profile: str = "default-scheduler") -> AsyncGenerator[None]:
    """Run kube-scheduler for the pods with this `schedulerName` until the context ends."""
    account = ("kube-scheduler", "-n", "kube-system")
    plane.kubectl("create", "serviceaccount", *account)
    for role in ("system:kube-scheduler", "system:volume-scheduler"):
        name = role.replace("system:", "test-")
        subject = "--serviceaccount=kube-system:kube-scheduler"
        plane.kubectl("create", "clusterrolebinding", name, f"--clusterrole={role}", subject)
    kubeconfig = plane.kubeconfig("kube-scheduler", plane.token("kube-scheduler", "kube-system"))
    (port,) = free_ports(1)
    address = (f"--bind-address={LOOPBACK}", f"--secure-port={port}")
    configuration = plane.directory / "kube-scheduler.json"
    configuration.write_text(
        json.dumps(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "clientConnection": {"kubeconfig": str(kubeconfig)},
                "leaderElection": {"leaderElect": False},
                "profiles": [{"schedulerName": profile}],
            }
        )
    )
    spec = ProcessSpec(
        name="kube-scheduler",
        argv=(str(PROGRAM), f"--config={configuration}", *address),
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
