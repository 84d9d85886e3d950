"""Paths of the machine's files and sockets, and what is probed at start: cgroup version, directory names, clock tick.

Source: agent spec, 1, 3.1.
"""

import ctypes
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from koord_agent.domain.kernel.cgroup_layout import (
    CgroupLayout,
    Driver,
    detect_layout,
    kubepods_directory,
    told_cgroup_roots,
)
from koord_agent.domain.kernel.resctrl_files import UNKNOWN_VENDOR, counts_in_megabytes, resctrl_support
from koord_agent.domain.kernel.storage_info import KUBELET_DIR
from koord_agent.settings import AgentSettings
from koord_agent.shell.host.kernel_files import read_kernel_file

CGROUP2_MAGIC = 0x63677270
STATFS_BYTES = 256
DEFAULT_JIFFY_NS = 10_000_000
POD_RESOURCES_SOCKET: Final = "pod-resources/kubelet.sock"
"""Path of the pod-resources socket below the folder of the kubelet."""
CONTAINERD: Final = "containerd"
DOCKER: Final = "docker"
RUNTIME_SOCKETS: Final[Mapping[str, str]] = {
    CONTAINERD: "containerd/containerd.sock",
    DOCKER: "docker.sock",
    "pouch": "pouchcri.sock",
    "cri-o": "crio/crio.sock",
}
"""Runtime -> path of its socket below /run or /var/run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRoots:
    """In a container, the file systems of the machine are mounted at other places."""

    cgroup: Path = Path("/sys/fs/cgroup")
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    filesystems: Path | None = None  # Path of /sys/fs (resctrl); None: `fs` below sys
    # Folders that contain sockets of runtimes, such as /run and /var/run.
    sockets: tuple[Path, ...] = (Path("/run"), Path("/var/run"))
    kubelet: Path = Path("/var/lib/kubelet")
    # `cgroupRoot` of the kubelet; "" if it has to be found.
    kubelet_cgroup_root: str = ""
    # Sockets of runtimes that are not in the folders above.
    endpoints: tuple[Path, ...] = ()

    @property
    def resctrl(self) -> Path:
        """Where it is mounted, or would be mounted."""
        return (self.filesystems or self.sys / "fs") / "resctrl"


def bandwidth_vendor(roots: HostRoots) -> str:
    """The vendor of the CPU, in whose unit resctrl counts memory bandwidth.

    `UNKNOWN_VENDOR` if resctrl is mounted with `mba_MBps`: then its unit is that of no vendor, and bandwidth is left
    alone.
    """
    mounts = read_kernel_file(str(roots.proc / "1" / "mountinfo")) or ""
    if counts_in_megabytes(mounts):
        return UNKNOWN_VENDOR
    return resctrl_support(read_kernel_file(str(roots.proc / "cpuinfo")) or "").vendor


def filesystem_magic(path: Path) -> int:
    """`f_type` of statfs(2), which Python's library does not provide.

    Raises:
        OSError: statfs fails.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(STATFS_BYTES)
    if libc.statfs(os.fsencode(path), buffer) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(path))
    # f_type is the first field, one machine word
    return int.from_bytes(buffer.raw[: ctypes.sizeof(ctypes.c_long)], "little") & 0xFFFFFFFF


def cgroup_version(root: Path) -> int:
    """2 if the file system at the cgroup root is cgroup2, else 1."""
    return 2 if filesystem_magic(root) == CGROUP2_MAGIC else 1


def cgroup_layout(
    root: Path,
    version: int,
    proc: Path = Path("/proc"),
    cgroup_root: str = "",
    kubelet: Path = Path(KUBELET_DIR),
) -> CgroupLayout:
    """From the names in the cpu hierarchy, else the kubelet's flags, else as for systemd (agent spec, 3.1).

    `cgroup_root` is the `cgroupRoot` of the kubelet by the settings; "" if they do not say it. `kubelet` is its folder.
    """
    hierarchy = root / "cpu" if version == 1 else root
    names = _directories(hierarchy)
    below = [f"{name}/{child}" for name in names for child in _directories(hierarchy / name)]
    arguments, configuration = kubelet_command(proc, kubelet)
    told = told_cgroup_roots(arguments, configuration, cgroup_root)
    possible = (kubepods_directory(above, driver) for above in told for driver in Driver)
    there = (*names, *below, *(root for root in possible if (hierarchy / root).is_dir()))
    return detect_layout(there, arguments, configuration, cgroup_root)


def _directories(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(folder) if entry.is_dir()]
    except OSError:
        return []


def kubelet_command(proc: Path, kubelet: Path = Path(KUBELET_DIR)) -> tuple[list[str] | None, str | None]:
    """The arguments of the machine's kubelet, and the text of its configuration file.

    A part that cannot be read is None. A relative path of the file is relative to the working directory of the kubelet.
    Without the capability SYS_PTRACE, only a file in the folder `kubelet` can be read.
    """
    for entry in sorted(proc.glob("[0-9]*/comm")):
        if (read_kernel_file(str(entry)) or "").strip() != "kubelet":
            continue
        process = entry.parent
        words = (read_kernel_file(str(process / "cmdline")) or "").split("\0")
        arguments = [word for word in words[1:] if word]
        file = _config_file(arguments)
        if file is None:
            return arguments, None
        if not file.startswith("/"):
            return arguments, read_kernel_file(str(process / "cwd" / file))
        text = read_kernel_file(str(process / "root" / file.lstrip("/")))
        # Without SYS_PTRACE, the root of another process is closed; this folder has the same path everywhere.
        is_seen = text is None and Path(file).is_relative_to(kubelet)
        return arguments, read_kernel_file(file) if is_seen else text
    return None, None


def _config_file(arguments: list[str]) -> str | None:
    for place, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == "--config":
            return value if equals else next(iter(arguments[place + 1 : place + 2]), None)
    return None


def jiffy_ns() -> int:
    """Length of a clock tick; 10 ms if unknown."""
    try:
        ticks = os.sysconf("SC_CLK_TCK")
    except (ValueError, OSError):
        return DEFAULT_JIFFY_NS
    return 1_000_000_000 // ticks if ticks > 0 else DEFAULT_JIFFY_NS


def host_roots(settings: AgentSettings) -> HostRoots:
    return HostRoots(
        cgroup=settings.cgroup_root,
        proc=settings.proc_root,
        sys=settings.sys_root,
        filesystems=settings.sys_fs_root,
        sockets=(settings.var_run_root, settings.run_root),
        kubelet=settings.var_lib_kubelet_dir,
        kubelet_cgroup_root=settings.kubelet_cgroup_root,
        endpoints=tuple(
            path
            for path in (settings.containerd_endpoint, settings.docker_endpoint, settings.pouch_endpoint)
            if path is not None
        ),
    )
