"""Install on a new control plane and print seconds and events as JSON: a process of `measure_installation`."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml
from bench.installation.containers import GATEWAY, make_bridge
from bench.installation.kubelet import NODE, Kubelet
from koordcore.bus.setup.tls_files import LOOPBACK_HOSTS
from support.kubernetes.control_plane import ControlPlane, running_control_plane
from support.kubernetes.kube_scheduler import kube_scheduler
from support.kubernetes.kubelets import add_nodes, node_document
from support.until import until

Json = dict[str, Any]

LONGEST: Final = 240.0
OVERLAY: Final = "k8s/overlays/dev"
SERVER_FLAGS: Final = ("--bind-address=0.0.0.0", "--enable-aggregator-routing=true")
"""Pods reach the API server over the bridge, and it calls webhooks at the addresses of pods: no kube-proxy runs."""
FIRST: Final[Json] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "first", "namespace": "default"},
    "spec": {
        "schedulerName": "koord-scheduler",
        "containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}}}],
    },
}


def storage() -> list[Json]:
    """Return a default StorageClass and volumes, which every cluster has in some form."""
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    kind: Json = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}
    kind |= {"metadata": {"name": "disk", "annotations": default}, "provisioner": "kubernetes.io/no-provisioner"}
    kind |= {"volumeBindingMode": "WaitForFirstConsumer"}
    spec: Json = {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "disk"}
    volumes = [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"disk-{number}"}}
        | {"spec": {**spec, "hostPath": {"path": f"/disk-{number}"}}}
        for number in range(2)
    ]
    return [kind, *volumes]


async def first_pod(plane: ControlPlane, saw: Callable[[str], None]) -> None:
    """Apply the overlay, and a pod until it is accepted; return when it is bound."""
    applied = await asyncio.to_thread(plane.ask, "apply", "-k", OVERLAY)
    if applied.code:
        raise RuntimeError(applied.err)
    saw("kubectl apply ended")
    document = yaml.safe_dump(FIRST)

    async def is_accepted() -> bool:
        return (await asyncio.to_thread(plane.ask, "apply", "-f", "-", stdin=document)).code == 0

    async def is_bound() -> bool:
        return "nodeName" in (await asyncio.to_thread(plane.get, "pod", "first"))["spec"]

    await until(is_accepted, "the pod is accepted", seconds=LONGEST, every=0.5)
    saw("the pod is accepted")
    await until(is_bound, "the pod is bound", seconds=LONGEST)
    saw("the pod is bound")


async def installed(plane: ControlPlane, folder: Path) -> Json:
    """Measure one installation."""
    node = node_document(NODE)
    add_nodes(plane, node)
    plane.apply(*storage())
    seen: list[tuple[float, str]] = []
    async with kube_scheduler(plane), plane.files.admin.client() as client:
        await until(lambda: plane.ask("get", "serviceaccount", "default").code == 0, "pods can be created")
        began = time.monotonic()

        def saw(what: str) -> None:
            seen.append((round(time.monotonic() - began, 1), what))

        kubelet = Kubelet(plane, client, folder / "pods", saw)
        serving = asyncio.create_task(kubelet.serve())
        bound = asyncio.create_task(first_pod(plane, saw))
        await asyncio.wait({serving, bound}, timeout=LONGEST, return_when=asyncio.FIRST_COMPLETED)
        seconds = time.monotonic() - began
        is_done = bound.done() and bound.exception() is None
        changes = plane.ask("diff", "-k", OVERLAY).out if is_done else ""
        for task in (serving, bound):
            task.cancel()
        problems = await asyncio.gather(serving, bound, return_exceptions=True)
    return {"seconds": seconds, "seen": seen, "failed": "" if is_done else repr(problems), "changes": changes}


def main() -> None:
    """Print the result."""
    make_bridge()
    folder = Path(sys.argv[1])
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    with running_control_plane(folder / "plane", SERVER_FLAGS, (*LOOPBACK_HOSTS, GATEWAY)) as plane:
        print(json.dumps(asyncio.run(installed(plane, folder))))


if __name__ == "__main__":
    main()
