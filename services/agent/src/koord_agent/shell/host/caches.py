"""The L3 caches of this machine, from sysfs.

Source: agent spec, 4.4.
"""

from collections.abc import Iterator
from pathlib import Path

from koordcore.events.nodestate import CpuCache

from koord_agent.domain.kernel.counters import whole_number
from koord_agent.domain.kernel.cpu_caches import CacheFiles, l3_caches
from koord_agent.shell.host.kernel_files import read_kernel_file

CPUS = "devices/system/cpu"


def read_l3_caches(sys: Path) -> list[CpuCache]:
    """Return each L3 cache of the machine once, from sysfs; empty if unknown."""
    return l3_caches(_files(sys / CPUS))


def _files(cpus: Path) -> Iterator[CacheFiles]:
    for cpu in _entries(cpus, "cpu"):
        for cache in _entries(cpu / "cache", "index"):
            texts = {name: read_kernel_file(f"{cache}/{name}") or "" for name in ("level", "id", "size")}
            yield CacheFiles(**texts, shared_cpu_list=read_kernel_file(f"{cache}/shared_cpu_list") or "")


def _entries(folder: Path, prefix: str) -> list[Path]:
    try:
        return sorted(e for e in folder.iterdir() if whole_number(e.name.removeprefix(prefix)) is not None)
    except OSError:
        return []
