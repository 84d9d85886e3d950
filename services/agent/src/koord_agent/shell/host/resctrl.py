"""Monitoring counters of the resctrl groups of this machine.

Source: agent spec, 6.9.
"""

from collections.abc import Mapping
from pathlib import Path

from koord_agent.domain.kernel.resctrl_files import GROUPS, MONITOR_FILES, MONITOR_PREFIX, parse_monitoring
from koord_agent.shell.host.kernel_files import read_kernel_file


def read_resctrl_counters(root: Path) -> Mapping[str, Mapping[int, Mapping[str, int]]]:
    """Return resctrl group -> cache id -> file name -> counter. Groups without counters are left out.

    Args:
        root: Path at which resctrl is mounted.
    """
    found: dict[str, Mapping[int, Mapping[str, int]]] = {}
    for group in GROUPS:
        data = root / group / "mon_data"
        try:
            directories = sorted(entry.name for entry in data.iterdir() if entry.name.startswith(MONITOR_PREFIX))
        except OSError:
            continue
        texts = {
            directory: {
                name: text
                for name in MONITOR_FILES
                if (text := read_kernel_file(f"{data}/{directory}/{name}")) is not None
            }
            for directory in directories
        }
        if counters := parse_monitoring(texts):
            found[group] = counters
    return found
