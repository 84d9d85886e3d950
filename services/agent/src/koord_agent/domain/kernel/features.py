"""Features of a machine that the agent can use, probed once at start and by `koord node doctor`.

Source: agent spec, 1 (3), 3.4 (support probing), 6.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Feature(StrEnum):
    """Features that a machine may lack and that are not files of the cgroup table.

    Files are named by their v1 name instead.
    """

    NODE_COUNTERS = "node cpu and memory"
    CGROUP_COUNTERS = "cgroup cpu and memory"
    CPU_TOPOLOGY = "cpu topology"
    NUMA = "NUMA memory"
    CACHES = "L3 caches"
    PSI = "PSI"
    CPI = "CPI"
    RESCTRL_CONTROL = "resctrl control"
    RESCTRL_MONITOR = "resctrl monitoring"
    COLD_PAGES = "cold pages"
    SCHED_DELAY = "scheduling delay"
    DISK_AWAIT = "disk latency"
    TCP_RETRANSMIT = "TCP retransmissions"
    POD_EVENTS = "pod life-cycle events"
    POD_RESOURCES = "pod resources"
    CONTAINER_RUNTIME = "container runtime"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    feature: str  # Name of the feature, or v1 name of a cgroup file
    usable: bool  # Whether it can be used
    file: str  # The file or directory that decides it
    why: str = ""  # Reason; "" if the feature can be used


@dataclass(frozen=True, slots=True)
class Features:
    """The findings about all features that the agent can use."""

    findings: tuple[Finding, ...]

    def usable(self, feature: str) -> bool:
        """`feature` is a `Feature` or the v1 name of a cgroup file."""
        return any(finding.feature == feature and finding.usable for finding in self.findings)

    def missing(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if not finding.usable)


def features_of(usable: Iterable[Feature], *, file: str, why: str) -> Features:
    """For a machine whose features are known without probing, such as a simulated one."""
    known = frozenset(usable)
    return Features(
        tuple(
            Finding(feature=feature, usable=feature in known, file=file, why="" if feature in known else why)
            for feature in Feature
        )
    )
