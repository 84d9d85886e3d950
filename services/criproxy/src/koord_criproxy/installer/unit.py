"""Files that start the installed proxy: the systemd unit, and the launcher of one version.

The launcher starts the copied Python by the dynamic linker of the copy. So the distribution of the host and its version
of glibc do not matter.
"""

from pathlib import Path
from typing import Final

from koordcore.runtime_api.proxy_facts import HOST_SOCKET

UNIT: Final = "koord-criproxy.service"
UNIT_FILE: Final = Path("/etc/systemd/system") / UNIT
PROXY_SOCKET: Final = Path("/run/koord-runtimeproxy/runtimeproxy.sock")
PROGRAM: Final = "koord-criproxy"
PYTHON: Final = "python/bin/python3"
STDLIB: Final = "python/lib/python{version}"
LIBRARIES: Final = "lib"
LINKER: Final = f"{LIBRARIES}/ld.so"
PACKAGES: Final = "packages"
LAUNCHER: Final = f"""\
#!/bin/sh
# Made by koord-criproxy-installer. Resolve the links: a running proxy loads no module of another version.
here=$(cd -P -- "${{0%/*}}" && pwd -P) || exit 1
export PYTHONHOME="$here/python" PYTHONPATH="$here/{PACKAGES}" PYTHONNOUSERSITE=1 PYTHONDONTWRITEBYTECODE=1
exec "$here/{LINKER}" --inhibit-cache --library-path "$here/{LIBRARIES}" "$here/{PYTHON}" -m koord_criproxy "$@"
"""
_SHIPPED_START: Final = "ExecStart=/usr/local/bin/koord-criproxy\n"


def installed_unit(shipped: str, *, folder: Path, runtime: Path, node: str) -> str:
    """Return the text of the unit for the current version below a folder.

    The log has no name and no key on the host, so facts go to the agent. /etc/default/koord-criproxy overrides every
    variable.

    Args:
        shipped: Text of the shipped unit.
        folder: Folder of the installed versions.
        runtime: Socket of the container runtime.
        node: Name of the node.
    """
    before, start, after = shipped.partition(_SHIPPED_START)
    assert start, f"the shipped unit starts {_SHIPPED_START!r}"
    variables = {"REMOTE_RUNTIME_SERVICE_ENDPOINT": runtime, "NODE_NAME": node, "FACTS_SOCKET": HOST_SOCKET}
    lines = [f"Environment=KOORD_CRIPROXY_{name}={value}\n" for name, value in variables.items()]
    return f"{before}ExecStart={folder}/current/{PROGRAM}\n{''.join(lines)}{after}"
