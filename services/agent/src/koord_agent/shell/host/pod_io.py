"""Disk and network counters of a real pod, from the devices and processes of its cgroup.

Source: agent spec, 18 (disk-io, network).
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from koord_agent.domain.kernel.counters import MalformedCounter
from koord_agent.domain.kernel.io_counters import DiskCounters, TcpCounters, parse_devices, parse_diskstats, parse_tcp
from koord_agent.shell.host.kernel_files import read_kernel_file


def disk_counters(proc: Path, devices_file: str) -> Mapping[str, DiskCounters] | None:
    """Return MAJ:MIN -> counters of the whole device, for the devices that a cgroup has used; None if unknown.

    Args:
        proc: Path of procfs.
        devices_file: Path of `io.stat` or `blkio.throttle.io_serviced_recursive` of the cgroup.
    """
    used, stats = read_kernel_file(devices_file), read_kernel_file(f"{proc}/diskstats")
    if used is None or stats is None:
        return None
    devices = parse_devices(used)
    return {device: counters for device, counters in parse_diskstats(stats).items() if device in devices}


def tcp_counters(proc: Path, processes: Iterable[str]) -> TcpCounters | None:
    """Return the TCP counters of a pod's network, as its first living process sees it.

    Return None if the pod uses the network of the machine, has no living process, or if the counters are unreadable.

    Args:
        proc: Path of procfs.
        processes: Ids of the pod's processes.
    """
    host = _network(proc, "1")
    for process in processes:
        network = _network(proc, process)
        if network is None:
            continue
        if network == host:
            return None
        text = read_kernel_file(f"{proc}/{process}/net/snmp")
        try:
            return parse_tcp(text) if text is not None else None
        except MalformedCounter:
            return None
    return None


def _network(proc: Path, process: str) -> str | None:
    try:
        return os.readlink(f"{proc}/{process}/ns/net")  # noqa: PTH115 - its target is a name, not a path
    except OSError:
        return None
