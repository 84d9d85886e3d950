"""The images that k8s/overlays/dev names, in one archive for containerd: ours, and stand-ins for the others.

They are built by a dockerd of one's own, which needs no network of its own and leaves no interface or rule behind. What
it has built stays in var/compose-test for the next time, as for `make test-compose`.
"""

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from support.cluster.machine import CGROUP, remove_cgroups
from support.compose import ROOT, docker, ensure_images, running_dockerd

FOLDER: Final = ROOT / "var" / "compose-test"
NAMES: Final = {
    "koordstream:test": "koordstream:latest",
    "koord-stand-in-nats": "nats:2.15.1-alpine",
    "koord-stand-in-nats-reloader": "natsio/nats-server-config-reloader:0.16.0",
    "koord-stand-in-postgres": "postgres:16.11-alpine",
}
"""Image as it is built -> its name in the manifests."""


@contextmanager
def private_dockerd() -> Generator[None]:
    """Run a dockerd inside the block, with a socket of its own and without a bridge."""
    flags = ("--bridge", "none", "--iptables=false", "--ip6tables=false", "--cgroup-parent", f"/{CGROUP}/images")
    before = os.environ.get("DOCKER_HOST")
    os.environ["DOCKER_HOST"] = f"unix://{FOLDER / 'docker.sock'}"
    folders = ("--exec-root", str(FOLDER / "exec"), "--pidfile", str(FOLDER / "dockerd.pid"))
    try:
        with running_dockerd(FOLDER, "--host", os.environ["DOCKER_HOST"], *folders, *flags):
            yield
    finally:
        # dockerd leaves the network namespace of `docker build --network host`.
        subprocess.run(["umount", str(FOLDER / "exec" / "netns" / "default")], capture_output=True, check=False)
        remove_cgroups(f"{CGROUP}/images")
        if before is None:
            del os.environ["DOCKER_HOST"]
        else:
            os.environ["DOCKER_HOST"] = before


def archive() -> Path:
    """Build what is missing, and return the archive of all images."""
    file, ids = FOLDER / "cluster-images.tar", FOLDER / "cluster-images.ids"
    with private_dockerd():
        ensure_images(FOLDER, ("nats", "nats-reloader", "postgres"))
        found = "\n".join(docker("image", "inspect", "--format", "{{.Id}}", name) for name in NAMES)
        if not file.exists() or not ids.exists() or ids.read_text() != found:
            for built, name in NAMES.items():
                docker("tag", built, name)
            docker("save", "--output", str(file), *NAMES.values())
            ids.write_text(found)
    return file
