"""One step of the CRI proxy's installer, as a process in the namespace of the host's processes; for tests.

    python -m support.install_step ROOT install VERSION | broken VERSION | remove

`broken` installs a proxy without its code. `remove` removes a proxy to whose own socket a kubelet connects. The process
prints what the step has returned or raised.
"""

import socket
import sys
from pathlib import Path

from koord_criproxy.installer.bundle import PROXY_SOCKET, UNIT, bundle
from koord_criproxy.installer.host import Host
from koord_criproxy.installer.steps import NO_CLIENTS, Installer, NotStarted, StillUsed
from koord_criproxy.installer.systemd import SOCKET, Systemd
from support.until import until_blocking

FOLDER = Path("/opt/koordstream")
RUNTIME = Path("/run/containerd/containerd.sock")


def step(root: Path, action: str, version: str = "") -> str:
    """Do one step and return its result."""
    host = Host(root, FOLDER)
    units = Systemd(host.at(SOCKET))
    installer = Installer(host, units, folder=FOLDER, runtime=RUNTIME, node="node-a")
    if action == "remove":
        with socket.socket(socket.AF_UNIX) as client:

            def connect(_: float) -> None:
                client.connect(str(host.at(PROXY_SOCKET)))
                until_blocking(lambda: units.state(UNIT).status != NO_CLIENTS, "systemd knows the connection")

            return installer.remove(0, connect)
    found = {
        name: path for name, path in bundle().items() if action != "broken" or "packages/koord_criproxy/" not in name
    }
    return installer.install(found, version)


if __name__ == "__main__":
    try:
        print(step(Path(sys.argv[1]), *sys.argv[2:]))
    except (NotStarted, StillUsed) as error:
        print(f"{type(error).__name__}: {error}")
