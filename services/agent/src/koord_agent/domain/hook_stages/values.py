"""Values that hooks decide for a pod or container, and values that a request had before.

Source: runtime spec, 2.4.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace

from koord_agent.domain.hooks.allocated_devices import BindMount, CharDevice


@dataclass(frozen=True, slots=True, kw_only=True)
class HookValues:
    """Values for a pod or container. None, or an empty collection, means that a value stays as it is.

    Attributes:
        bvt: Value of cpu.bvt_warp_ns.
        cpu_shares: CPU shares.
        cfs_quota_us: CPU quota in microseconds per period of 100 ms; -1 means unlimited.
        cpuset: CPU list; "" clears it.
        memory_limit_bytes: Memory limit in bytes; -1 means unlimited.
        resctrl_group: Name of the pod's own resctrl group.
        resctrl_schemata: Text of the schemata of the group. "" sets no limit.
        envs: Environment variables to add or replace: name -> value.
        mounts: Paths of the machine to add, each with its path in the container.
        devices: Character devices to add.
        host_dir: Folder to create on the machine. If it exists, it is deleted with its contents first. "" for none.
        problem: Why a value could not be decided and stays unset, as a sentence; the other values count. "" for no
            problem.
    """

    bvt: int | None = None
    cpu_shares: int | None = None
    cfs_quota_us: int | None = None
    cpuset: str | None = None
    memory_limit_bytes: int | None = None
    resctrl_group: str | None = None
    resctrl_schemata: str | None = None
    envs: Mapping[str, str] = field(default_factory=dict[str, str])
    mounts: tuple[BindMount, ...] = ()
    devices: tuple[CharDevice, ...] = ()
    host_dir: str = ""
    problem: str = ""

    def then(self, later: "HookValues") -> "HookValues":
        """Return these values with those of a later hook, which takes precedence.

        Mounts, devices and problems of both are kept, also equal ones. Of two environment variables with one name, the
        later one stays.
        """
        scalars = {name: value for name in SCALARS if (value := getattr(later, name)) is not None}
        return replace(
            self,
            **scalars,
            envs={**self.envs, **later.envs},
            mounts=(*self.mounts, *later.mounts),
            devices=(*self.devices, *later.devices),
            host_dir=later.host_dir or self.host_dir,
            problem="; ".join(filter(None, (self.problem, later.problem))),
        )

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yield the name and text of each value that is set, for explanations. A mount or device is named by its path.

        A memory limit or quota of -1 (unlimited) has the text "-1". `host_dir` and `problem` are not among them.
        """
        for name in SCALARS:
            value = getattr(self, name)
            if value is not None:
                yield name, str(value)
        for name, value in self.envs.items():
            yield f"env {name}", value
        for mount in self.mounts:
            yield f"mount {mount.destination}", mount.source
        for device in self.devices:
            yield f"device {device.path}", f"{device.major}:{device.minor}"


SCALARS = tuple(
    one.name for one in fields(HookValues) if one.name not in ("envs", "mounts", "devices", "host_dir", "problem")
)
"""Names of the values that are one number or text."""
NOTHING = HookValues()
