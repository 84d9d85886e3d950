"""Probe features of this kernel, this CPU and the agent's permissions, each with the file that decides it.

They are probed once at start. A collector without its feature does not run, and the reason is reported.

Source: agent spec, 1 (3), 3.4, 6, 15.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from koordcore.protocol.qos import KubeQos

from koord_agent.domain.kernel.cgroup_files import RESOURCES, Unsupported, file_path
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout
from koord_agent.domain.kernel.counters import parse_busy_ticks_per_cpu
from koord_agent.domain.kernel.features import Feature, Features, Finding
from koord_agent.domain.kernel.resctrl_files import resctrl_support
from koord_agent.shell.host.kernel_files import read_kernel_file
from koord_agent.shell.host.numa import CPUS, NumaReader, read_cpus, read_l3_caches
from koord_agent.shell.host.perf import CountersAbsent, open_cgroup_counters
from koord_agent.shell.host.probe import POD_RESOURCES_SOCKET, RUNTIME_SOCKETS, HostRoots

_NO_PODS = "the cgroup of the pods does not exist; if the kubelet has a cgroupRoot, give it by --kubelet-cgroup-root"
_PROBED_IN_ROOT = frozenset({"blkio.cost.qos", "blkio.cost.model"})
"""Files of the whole machine, which are probed in the root of their hierarchy."""


def find_features(roots: HostRoots, version: int, layout: CgroupLayout) -> Features:
    """Probe every feature that the agent can use, and every file of the cgroup table."""
    probe = _Probe(roots, version, layout)
    return Features((*probe.measured(), *probe.knobs()))


class _Probe:
    def __init__(self, roots: HostRoots, version: int, layout: CgroupLayout) -> None:
        self._roots = roots
        self._version = version
        self._layout = layout

    def measured(self) -> Iterator[Finding]:
        """Features that collectors need."""
        roots = self._roots
        yield _readable(Feature.NODE_COUNTERS, roots.proc / "stat")
        yield self._cgroup_counters()
        yield self._topology()
        yield self._numa()
        yield self._caches()
        yield self._pressure()
        yield self._cycles()
        yield from self._resctrl()
        yield _readable(Feature.COLD_PAGES, roots.sys / "kernel/mm/kidled/scan_period_in_seconds", "no kidled here")
        yield _readable(Feature.SCHED_DELAY, roots.proc / "self/schedstat", "CONFIG_SCHED_INFO is off")
        yield _readable(Feature.DISK_AWAIT, roots.proc / "diskstats")
        yield _readable(Feature.TCP_RETRANSMIT, roots.proc / "self/net/snmp")
        yield self._pod_events()
        yield _socket(Feature.POD_RESOURCES, [self._roots.kubelet / POD_RESOURCES_SOCKET], "no kubelet listens there")
        usual = (folder / socket for folder in self._roots.sockets for socket in RUNTIME_SOCKETS.values())
        sockets = [*self._roots.endpoints, *usual]
        yield _socket(
            Feature.CONTAINER_RUNTIME,
            sockets,
            "no socket of a container runtime in its usual place: name it with --containerd-endpoint, --docker-endpoint"
            " or --pouch-endpoint, or evictions remain requests",
        )

    def knobs(self) -> Iterator[Finding]:
        """Every file of the resource table, by its v1 name."""
        directory = self._some_directory()
        for name in sorted(RESOURCES):
            try:
                path = file_path(
                    str(self._roots.cgroup), name, "" if name in _PROBED_IN_ROOT else directory, self._version
                )
            except Unsupported as error:
                yield Finding(feature=name, usable=False, file="", why=str(error))
                continue
            there = Path(path).exists()
            yield Finding(feature=name, usable=there, file=path, why="" if there else self._why_missing(name, path))

    def _some_directory(self) -> str:
        """Return the root of the pods if it exists, else any directory below the root of the hierarchy.

        The root of the hierarchy itself lacks most files.
        """
        if self._directory(self._layout.root).is_dir():
            return self._layout.root
        children = sorted(self._children(self._directory("")))
        return children[0] if children else ""

    def _directory(self, directory: str, hierarchy: str = "cpu") -> Path:
        return (self._roots.cgroup / hierarchy if self._version == 1 else self._roots.cgroup) / directory

    def _children(self, folder: Path) -> list[str]:
        try:
            return [entry.name for entry in folder.iterdir() if entry.is_dir()]
        except OSError:
            return []

    def _why_missing(self, name: str, path: str) -> str:
        hierarchy = RESOURCES[name].hierarchy
        if self._version == 1 and hierarchy and not (self._roots.cgroup / hierarchy).is_dir():
            return f"the hierarchy {hierarchy} is not mounted"
        if not Path(path).parent.is_dir():
            return "no cgroup to look into"
        return "this kernel does not have it"

    def _cgroup_counters(self) -> Finding:
        file = Path(file_path(str(self._roots.cgroup), "cpuacct.usage", "", self._version, reading=True))
        return _readable(Feature.CGROUP_COUNTERS, file)

    def _topology(self) -> Finding:
        found = read_cpus(self._roots.sys, NumaReader(self._roots.sys).cpus())
        file = str(self._roots.sys / CPUS / "online")
        return Finding(
            feature=Feature.CPU_TOPOLOGY, usable=not found.problems, file=file, why="; ".join(found.problems)
        )

    def _numa(self) -> Finding:
        """The first node; its id is not always 0."""
        first = next(iter(NumaReader(self._roots.sys).nodes), 0)
        return _readable(Feature.NUMA, self._roots.sys / f"bus/node/devices/node{first}/meminfo")

    def _caches(self) -> Finding:
        there = bool(read_l3_caches(self._roots.sys))
        why = "" if there else "the machine does not tell which CPUs share one"
        return Finding(feature=Feature.CACHES, usable=there, file=str(self._roots.sys / CPUS), why=why)

    def _pressure(self) -> Finding:
        directory = self._some_directory()
        file = Path(file_path(str(self._roots.cgroup), "cpu.pressure", directory, self._version))
        if self._version == 1 and not file.exists():
            of_controller = self._directory(directory, "cpu") / "cpu.pressure"
            file = of_controller if of_controller.exists() else file
        why = "no PSI per cgroup (boot with psi=1)"
        if self._version == 1:
            why = "no PSI per cgroup: only extended v1 kernels have it"
        return _readable(Feature.PSI, file, why)

    def _cycles(self) -> Finding:
        directory = self._directory(self._some_directory(), "perf_event")
        file = str(directory)
        if not directory.is_dir():
            return Finding(feature=Feature.CPI, usable=False, file=file, why="the hierarchy perf_event is not mounted")
        cpus = sorted(parse_busy_ticks_per_cpu(read_kernel_file(str(self._roots.proc / "stat")) or ""))
        try:
            open_cgroup_counters(file, cpus[:1]).close()
        except (CountersAbsent, OSError) as error:
            return Finding(feature=Feature.CPI, usable=False, file=file, why=str(error))
        return Finding(feature=Feature.CPI, usable=bool(cpus), file=file, why="" if cpus else "no CPU is known")

    def _resctrl(self) -> Iterator[Finding]:
        cpuinfo = self._roots.proc / "cpuinfo"
        root = self._roots.resctrl
        support = resctrl_support(read_kernel_file(str(cpuinfo)) or "")
        for feature, able in ((Feature.RESCTRL_CONTROL, support.control), (Feature.RESCTRL_MONITOR, support.monitor)):
            mounted = (root / "info").is_dir()
            why = "" if able and mounted else "resctrl is not mounted" if able else "the CPU does not have it"
            yield Finding(
                feature=feature, usable=able and mounted, file=str(root / "info" if able else cpuinfo), why=why
            )

    def _pod_events(self) -> Finding:
        directory = self._directory(self._layout.qos_directory(KubeQos.BURSTABLE))
        there = directory.is_dir()
        return Finding(feature=Feature.POD_EVENTS, usable=there, file=str(directory), why="" if there else _NO_PODS)


def _readable(feature: str, file: Path, why: str = "") -> Finding:
    """`why` is the reason if the file is missing."""
    try:
        with os.fdopen(os.open(file, os.O_RDONLY), "rb") as stream:
            stream.read(1)
    except FileNotFoundError as error:
        return Finding(feature=feature, usable=False, file=str(file), why=why or str(error.strerror))
    except OSError as error:
        return Finding(feature=feature, usable=False, file=str(file), why=str(error.strerror))
    return Finding(feature=feature, usable=True, file=str(file))


def _socket(feature: str, places: Sequence[Path], why: str) -> Finding:
    """The socket may be in several places."""
    found = next((place for place in places if place.is_socket()), None)
    return Finding(feature=feature, usable=found is not None, file=str(found or places[0]), why="" if found else why)
