"""Names of the cgroup directories of QoS classes, pods, containers and host applications.

Directories are relative to the root of a hierarchy and have no trailing slash. The class directory follows the
Kubernetes QoS class of a pod, never its Koordinator label.

Source: agent spec, 3.1 to 3.3.
"""

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from koordcore.protocol.qos import KubeQos
from koordcore.values.invalid import InvalidInput


class Driver(StrEnum):
    """Cgroup driver of the kubelet, which decides the names of cgroup directories: systemd or cgroupfs."""

    SYSTEMD = "systemd"
    CGROUPFS = "cgroupfs"


class UnknownContainerId(ValueError):
    """Raised for a container id that does not have the form `<runtime>://<id>` with a known runtime."""


SYSTEMD_RUNTIME_PREFIX = {"docker": "docker-", "containerd": "cri-containerd-", "pouch": "pouch-", "cri-o": "crio-"}
PARSED_PREFIX = {"docker-": "docker", "cri-containerd-": "containerd", "crio-": "cri-o"}
"""Prefixes of container directories that are parsed. That of pouch is not parsed."""

ROOT = {Driver.SYSTEMD: "kubepods.slice", Driver.CGROUPFS: "kubepods"}
LATENCY_SENSITIVE_APPS = "host-latency-sensitive"
BEST_EFFORT_APPS = "host-best-effort"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostApplication:
    """A process outside of Kubernetes that the NodeSLO names, with its QoS and cgroup."""

    name: str
    qos: str = ""  # QoS class
    priority: str = ""  # Priority class
    # Base of its cgroup path: CgroupRoot, Kubepods, KubepodsBurstable or KubepodsBesteffort; None if the NodeSLO has no
    # cgroupPath.
    base: str | None = None
    parent_dir: str = ""  # Directory below the base, or empty
    relative_path: str = ""  # Directory of the process below `parent_dir`, or empty

    @property
    def is_best_effort(self) -> bool:
        """For CPU suppression: QoS BE and a cgroup in the best-effort class."""
        return self.qos == "BE" and self.base == "KubepodsBesteffort"


@dataclass(frozen=True, slots=True)
class CgroupLayout:
    """Names of cgroup directories for one cgroup driver, relative to the root of a hierarchy."""

    driver: Driver  # Cgroup driver of the kubelet
    # Directory of the root of all pods, if it is not the usual one. Another one than the kubelet's makes a separate
    # tree.
    kubepods: str = ""

    @property
    def root(self) -> str:
        """Contains the directories of all pods."""
        return self.kubepods or ROOT[self.driver]

    def qos_directory(self, qos: KubeQos) -> str:
        """Guaranteed pods live in the root of all pods."""
        return _qos_directory(self, qos)

    def pod_directory(self, qos: KubeQos, pod_uid: str) -> str:
        """The systemd driver replaces `-` in the UID by `_`.

        Raises:
            InvalidInput: The UID is not a plain file name.
        """
        return _pod_directory(self, qos, pod_uid)

    def container_directory(self, qos: KubeQos, pod_uid: str, container_id: str) -> str:
        """Raises UnknownContainerId: The id is not `<runtime>://<id>`, or its runtime is unknown.

        Raises InvalidInput: The UID is not a plain file name.
        """
        return _container_directory(self, qos, pod_uid, container_id)

    def parse_pod(self, basename: str) -> str | None:
        """Return the pod id in the name of a cgroup directory; None for other directories.

        Ids of systemd keep `_` for `-`.
        """
        if self.driver is Driver.CGROUPFS:
            return basename.removeprefix("pod") or None if basename.startswith("pod") else None
        if not basename.endswith(".slice"):
            return None
        stem = posixpath.basename(self.root).removesuffix(".slice")
        for prefix in (f"{stem}-besteffort-pod", f"{stem}-burstable-pod", f"{stem}-pod"):
            if basename.startswith(prefix):
                return basename.removeprefix(prefix).removesuffix(".slice") or None
        return None

    def parse_container(self, basename: str) -> str | None:
        """Return the container id, without its runtime, in the name of a directory; None for other directories."""
        if self.driver is Driver.CGROUPFS:
            return basename or None
        parsed = _parse_scope(basename)
        return parsed[1] if parsed else None

    def container_id(self, basename: str) -> str | None:
        """Return the full container id `<runtime>://<id>` for the name of a cgroup directory.

        None for other directories.

        With cgroupfs, directory names do not contain the runtime, so the id alone is returned.
        """
        if self.driver is Driver.CGROUPFS:
            return basename or None
        parsed = _parse_scope(basename)
        return f"{parsed[0]}://{parsed[1]}" if parsed else None

    def sandbox(self, container_ids: Sequence[str], directories: Iterable[str]) -> str | None:
        """Return the id of a pod's sandbox: the only cgroup directory of the pod that belongs to no known container.

        Args:
            container_ids: Ids of all containers and init containers of the pod.
            directories: Names of the pod's directories in the cpuset hierarchy. With cri-o only names without
                `.scope` count.

        Returns:
            The id `<runtime>://<id>`. None unless exactly one directory is left.
        """
        known = {split_container_id(container_id)[1] for container_id in container_ids}
        left: list[str] = []
        for basename in directories:
            if self.driver is Driver.SYSTEMD or basename.startswith("crio-"):
                parsed = _parse_scope(basename)
                if parsed is None or (parsed[0] == "cri-o" and basename.endswith(".scope")):
                    continue
                runtime, identity = parsed
            elif container_ids:
                runtime, identity = split_container_id(container_ids[0])[0], basename
            else:
                continue
            if identity not in known:
                left.append(f"{runtime}://{identity}")
        return left[0] if len(left) == 1 else None

    def host_application_directory(self, application: HostApplication) -> str:
        """Return the cgroup directory of a host application, a process outside of Kubernetes (agent spec, 3.3).

        Without a base, the QoS class decides the parent: host-latency-sensitive for LSE, LSR and LS, host-best-effort
        for BE, and the root of the hierarchy for others.

        Raises:
            ValueError: The base of cgroupPath is unknown, or the path leaves its base.
        """
        if application.base is None and (not application.name or set(application.name.split("/")) & {"", ".", ".."}):
            raise ValueError(f"host application: its name must be a plain path, is {application.name!r}")
        if application.base is None:
            match application.qos:
                case "LSE" | "LSR" | "LS":
                    return posixpath.join(LATENCY_SENSITIVE_APPS, application.name)
                case "BE":
                    return posixpath.join(BEST_EFFORT_APPS, application.name)
                case _:
                    return application.name
        bases = {
            "": "",
            "CgroupRoot": "",
            "Kubepods": self.root,
            "KubepodsBurstable": self.qos_directory(KubeQos.BURSTABLE),
            "KubepodsBesteffort": self.qos_directory(KubeQos.BEST_EFFORT),
        }
        if application.base not in bases:
            raise ValueError(f"cgroupPath.base: must be one of {sorted(bases)[1:]}, is {application.base!r}")
        below = posixpath.normpath("/" + posixpath.join("/", application.parent_dir) + "/" + application.relative_path)
        if ".." in posixpath.join(application.parent_dir, application.relative_path).split("/"):
            raise ValueError(f"cgroupPath: must stay below its base, is {application.relative_path!r}")
        return posixpath.join(bases[application.base], below.strip("/")).rstrip("/")


# a cycle asks for every pod's directory: the names are worth keeping
@lru_cache(maxsize=64)
def _qos_directory(layout: CgroupLayout, qos: KubeQos) -> str:
    if qos is KubeQos.GUARANTEED:
        return layout.root
    name = qos.value.lower()
    return posixpath.join(layout.root, _slice(layout, f"-{name}") if layout.driver is Driver.SYSTEMD else name)


@lru_cache(maxsize=65_536)
def _pod_directory(layout: CgroupLayout, qos: KubeQos, pod_uid: str) -> str:
    if not pod_uid or "/" in pod_uid or "\0" in pod_uid or pod_uid in (".", ".."):
        raise InvalidInput("a plain name without '/'", pod_uid, "metadata.uid")
    parent = _qos_directory(layout, qos)
    if layout.driver is Driver.CGROUPFS:
        return f"{parent}/pod{pod_uid}"
    infix = "" if qos is KubeQos.GUARANTEED else f"-{qos.value.lower()}"
    return f"{parent}/{_slice(layout, f'{infix}-pod' + pod_uid.replace('-', '_'))}"


@lru_cache(maxsize=16_384)
def _container_directory(layout: CgroupLayout, qos: KubeQos, pod_uid: str, container_id: str) -> str:
    runtime, identity = split_container_id(container_id)
    name = identity
    if layout.driver is Driver.SYSTEMD:
        name = f"{SYSTEMD_RUNTIME_PREFIX[runtime]}{identity}.scope"
    return posixpath.join(_pod_directory(layout, qos, pod_uid), name)


def _slice(layout: CgroupLayout, parts: str) -> str:
    return f"{posixpath.basename(layout.root).removesuffix('.slice')}{parts}.slice"


def split_container_id(container_id: str) -> tuple[str, str]:
    """Raises UnknownContainerId: No `<runtime>://<id>`, or the runtime is not docker, containerd, pouch or cri-o."""
    runtime, separator, identity = container_id.partition("://")
    if not separator or not identity or "/" in identity or runtime not in SYSTEMD_RUNTIME_PREFIX:
        raise UnknownContainerId(
            f"container id: must be <runtime>://<id> with runtime {', '.join(SYSTEMD_RUNTIME_PREFIX)};"
            f" is {container_id!r}"
        )
    return runtime, identity


def _parse_scope(basename: str) -> tuple[str, str] | None:
    for prefix, runtime in PARSED_PREFIX.items():
        if not basename.startswith(prefix):
            continue
        identity = basename.removeprefix(prefix)
        if identity.endswith(".scope"):
            identity = identity.removesuffix(".scope")
        elif runtime != "cri-o":
            return None
        return (runtime, identity) if identity else None
    return None


def kubepods_directory(cgroup_root: str, driver: Driver) -> str:
    """Return the root of all pods for the `cgroupRoot` of a kubelet.

    "" and "/" are the root of the hierarchy. The systemd driver makes one slice of each part of the path, whose name
    begins with that of the slice above: "/a/b" is a.slice/a-b.slice/a-b-kubepods.slice.

    Source: Kubernetes, pkg/kubelet/cm/cgroup_manager_linux.go (CgroupName.ToSystemd).
    """
    parts = [part for part in cgroup_root.split("/") if part]
    if driver is Driver.CGROUPFS:
        return posixpath.join(*parts, ROOT[driver])
    names = [*(part.replace("-", "_") for part in parts), ROOT[driver].removesuffix(".slice")]
    return posixpath.join(*(f"{'-'.join(names[:count])}.slice" for count in range(1, len(names) + 1)))


def told_cgroup_roots(
    kubelet_args: Sequence[str] | None, kubelet_config: str | None, cgroup_root: str
) -> tuple[str, ...]:
    """Return what the settings of the agent and then the kubelet's process say about its `cgroupRoot`, without "".

    The arguments are those of `detect_layout`.
    """
    of_process = _argument(kubelet_args or (), "cgroup-root") or _config_line(kubelet_config or "", "cgroupRoot")
    return tuple(root for root in (cgroup_root, of_process) if root)


def detect_layout(
    directories: Iterable[str],
    kubelet_args: Sequence[str] | None,
    kubelet_config: str | None = None,
    cgroup_root: str = "",
) -> CgroupLayout:
    """Return the names of directories on this machine.

    The root of all pods is that of `cgroup_root`. Without it, it is the first of these that exists: that of the
    kubelet's process, that of a kubelet without `cgroupRoot`, and any other one if there is only one. If none exists,
    it is the first that was told.

    Args:
        directories: Paths of existing directories below the root of the cpu hierarchy: one level below, two levels
            below, and the roots of `told_cgroup_roots`.
        kubelet_args: As for `detect_driver`. The process may be that of another node, whose cgroups are not these.
        kubelet_config: As for `detect_driver`.
        cgroup_root: `cgroupRoot` of the kubelet by the settings of the agent; "" if they do not say it.
    """
    there = set(directories)
    told = told_cgroup_roots(kubelet_args, kubelet_config, cgroup_root)
    for above in (cgroup_root,) if cgroup_root else (*told, ""):
        for driver in Driver:
            if (root := kubepods_directory(above, driver)) in there:
                return _layout(driver, root)
    others = {path: driver for path in there if (driver := _driver_of_root(path)) is not None}
    if len(others) == 1 and not cgroup_root:
        ((root, driver),) = others.items()
        return _layout(driver, root)
    driver = detect_driver((), kubelet_args, kubelet_config)
    return _layout(driver, kubepods_directory(told[0] if told else "", driver))


def _layout(driver: Driver, root: str) -> CgroupLayout:
    return CgroupLayout(driver, kubepods="" if root == ROOT[driver] else root)


def _driver_of_root(path: str) -> Driver | None:
    """Return the driver that names a directory as the root of all pods; None for other directories."""
    above = posixpath.dirname(path)
    for driver in Driver:
        parent = above if driver is Driver.CGROUPFS else posixpath.basename(above).removesuffix(".slice")
        if path == kubepods_directory(parent, driver):
            return driver
    return None


def detect_driver(
    directories: Iterable[str], kubelet_args: Sequence[str] | None, kubelet_config: str | None = None
) -> Driver:
    """Return the cgroup driver of this machine.

    Args:
        directories: Names directly below the root of the cpu hierarchy.
        kubelet_args: Arguments of the process on the kubelet's port; None if it could not be inspected.
        kubelet_config: Text of the file in --config; None if unreadable.

    Source: agent spec, 3.1.
    """
    names = set(directories)
    for driver in (Driver.SYSTEMD, Driver.CGROUPFS):
        if ROOT[driver] in names:
            return driver
    if kubelet_args is None:
        return Driver.SYSTEMD
    asked = _argument(kubelet_args, "cgroup-driver")
    if asked is None:
        if _argument(kubelet_args, "config") is None:
            return Driver.CGROUPFS
        if kubelet_config is None:
            return Driver.SYSTEMD
        asked = _config_line(kubelet_config, "cgroupDriver") or Driver.CGROUPFS.value
    return Driver(asked) if asked in set(Driver) else Driver.SYSTEMD


def _argument(arguments: Sequence[str], name: str) -> str | None:
    for position, argument in enumerate(arguments):
        flag, equals, value = argument.lstrip("-").partition("=")
        if argument.startswith("-") and flag == name:
            return value if equals else (arguments[position + 1] if position + 1 < len(arguments) else "")
    return None


def _config_line(config: str, name: str) -> str | None:
    for line in config.splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() == name:
            return value.split("#")[0].strip().strip("\"'")
    return None
