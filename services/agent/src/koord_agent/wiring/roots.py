"""Paths of the file systems of this machine, from the settings."""

from koord_agent.settings import AgentSettings
from koord_agent.shell.host.probe import HostRoots


def host_roots(settings: AgentSettings) -> HostRoots:
    """Return the paths of this machine's file systems."""
    return HostRoots(
        cgroup=settings.cgroup_root,
        proc=settings.proc_root,
        sys=settings.sys_root,
        filesystems=settings.sys_fs_root,
        sockets=(settings.var_run_root, settings.run_root),
        kubelet=settings.var_lib_kubelet_dir,
        in_container=settings.in_container,
    )
