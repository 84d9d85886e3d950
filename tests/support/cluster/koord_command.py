"""`koord` on the machine of an operator: the Secret koord-operator, and `kubectl port-forward`, as the guide says."""

import base64
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from koordcore.embedded.ports import free_ports
from koordctl.stack.kubernetes.programs import admin_kubeconfig
from support.cluster.cluster import SYSTEM, Cluster
from support.kubernetes.control_plane import ROOT, TOOLS
from support.until import until_blocking

SERVERS: Final = {
    "KOORD_NATS": ("tls", "service/nats", 4222),
    "KOORD_PROJECTOR": ("https", "service/koord-projector", 8080),
    "KOORD_MANAGER": ("https", "deployment/koord-manager", 8081),
}
"""Variable -> scheme, what is forwarded, and its port."""


@dataclass(frozen=True)
class Operator:
    """An operator with access to the installed system.

    Attributes:
        environment: Variables of `koord`.
    """

    environment: dict[str, str]

    def koord(self, *words: str) -> str:
        """Run a `koord` command and return what it prints, whether it succeeds or not."""
        command = [str(Path(sys.executable).with_name("koord")), *words]
        done = subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr


@contextmanager
def operator(cluster: Cluster, folder: Path) -> Generator[Operator]:
    """Forward the ports inside the block; the keys lie in a folder."""
    data: dict[str, str] = cluster.plane.get("secret", "koord-operator", "-n", SYSTEM)["data"]
    for name, text in data.items():
        (folder / name).write_bytes(base64.b64decode(text))
        (folder / name).chmod(0o600)
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "KOORD_CLUSTER": "dev",
        "KOORD_TOKEN_FILE": str(folder / "token"),
        "KOORD_CA": str(folder / "ca.crt"),
        "KOORD_NATS_SEED": str(folder / "nats.seed"),
        "KOORD_NATS_CA": str(folder / "ca.crt"),
    }
    kubectl = (str(TOOLS / "kubectl"), "--kubeconfig", str(admin_kubeconfig(cluster.folder)))
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for (variable, (scheme, target, port)), own in zip(SERVERS.items(), free_ports(len(SERVERS)), strict=True):
            log = folder / f"{variable}.log"
            with log.open("wb") as output:
                words = (*kubectl, "port-forward", "-n", SYSTEM, target, f"{own}:{port}")
                processes.append(subprocess.Popen(words, stdout=output, stderr=output))
            until_blocking(lambda log=log: "Forwarding" in log.read_text(), f"{target} is forwarded")
            environment[variable] = f"{scheme}://localhost:{own}"
        yield Operator(environment)
    finally:
        for process in processes:
            process.terminate()
            process.wait()
