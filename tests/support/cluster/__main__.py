"""`make cluster` and `make cluster-down`: `python -m support.cluster up` or `down`."""

import sys
import time

from koordctl.stack.kubernetes.programs import admin_kubeconfig
from support.cluster.cluster import FOLDER, Cluster, unusable


def main(command: str) -> int:
    """Start or remove the cluster in var/cluster, and return the exit status."""
    cluster = Cluster(FOLDER)
    if command == "down":
        cluster.down()
        return 0
    if reason := unusable():
        print(f"no cluster: {reason}", file=sys.stderr)
        return 1
    if cluster.machine.is_running:
        print("it runs already; `make cluster-down` removes it", file=sys.stderr)
        return 1
    began = time.monotonic()
    steps = {
        "control plane and node": cluster.up,
        "images": cluster.load_images,
        "kubectl apply -k k8s/overlays/dev": cluster.install,
    }
    for name, step in steps.items():
        print(f"==> {name}", flush=True)
        step()
        print(f"    {time.monotonic() - began:.0f} s", flush=True)
    print(f"export KUBECONFIG={admin_kubeconfig(FOLDER)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
