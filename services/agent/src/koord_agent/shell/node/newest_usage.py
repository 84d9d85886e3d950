"""The usage by which CPU suppression decides: since the last cycle, or since a decision that was made after it."""

from collections.abc import Iterable, Mapping

from koord_agent.domain.kernel.cgroup_layout import HostApplication
from koord_agent.domain.metrics.monitor import HostReading, Latest, latest_between
from koord_agent.shell.collect.collectors import Collectors
from koord_agent.shell.collect.sensing import read_cpu_counters
from koord_agent.shell.host.host import Host


class NewestUsage:
    """Only the task that measures a node uses it."""

    def __init__(self, host: Host, collectors: Collectors) -> None:
        self._host = host
        self._collectors = collectors
        self._decided: HostReading | None = None
        """Reading on which the last decision was based."""
        self._early: HostReading | None = None
        """The same, if the decision was made after the last cycle."""

    def of_cycle(self, latest: Latest) -> Latest:
        """Return the usages of a cycle whose collectors have run; `latest` are those since the last cycle."""
        reading = self._collectors.reading
        if self._early is not None and reading is not None:
            # what was before the rise of the load is past
            latest = _newer(latest, latest_between(self._early, reading))
        self._early, self._decided = None, reading
        return latest

    def between_cycles(self, host_applications: Iterable[HostApplication]) -> Latest | None:
        """Measure the usage since the last decision. None before the first cycle.

        No sample is stored: averages stay those of the collectors' interval.
        """
        places, before = self._collectors.places, self._decided
        if places is None or before is None:
            return None
        self._early = self._decided = read_cpu_counters(self._host, places, host_applications)
        return latest_between(before, self._decided)


def _newer(last: Latest, newest: Latest) -> Latest:
    """Return the newest usages, and the last ones of what has no newer one."""

    def each(old: Mapping[str, float | None], new: Mapping[str, float | None]) -> dict[str, float | None]:
        return {name: used if (later := new.get(name)) is None else later for name, used in old.items()}

    node = newest.node_cpu_cores
    return Latest(
        node_cpu_cores=last.node_cpu_cores if node is None else node,
        pod_cpu_cores=each(last.pod_cpu_cores, newest.pod_cpu_cores),
        host_app_cpu_cores=each(last.host_app_cpu_cores, newest.host_app_cpu_cores),
    )
