"""The quotas and burst buffers in the files that CPU burst sets, for metrics."""

import posixpath
from collections.abc import Iterable

from koordcore.values.invalid import InvalidInput

from koord_agent.domain.kernel.cfs_bandwidth import PER_PERIOD
from koord_agent.domain.kernel.cgroup_files import Unsupported, from_file_text
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.plans.plan import CgroupFile, Plan
from koord_agent.domain.strategies.cpu_burst_rules import PLUGIN
from koord_agent.shell.host.executor import Outcome, Result

MOST_KEPT = 2_000
"""Number of files above which those of ended pods are dropped."""


class BurstValues:
    def __init__(self, cgroup_version: int) -> None:
        self.by_file: dict[CgroupFile, int] = {}  # Microseconds per 100 ms that the file has; -1 for an unlimited quota
        self._version = cgroup_version

    def take(self, look: NodeLook, plans: Iterable[Plan], outcomes: Iterable[Outcome]) -> None:
        """Take what is in the files with a plan of CPU burst after a cycle."""
        planned = {plan.file for plan in plans if plan.plugin == PLUGIN and plan.file.resource in PER_PERIOD}
        for outcome in outcomes:
            if outcome.file not in planned:
                continue
            text = outcome.after if outcome.result is Result.WRITTEN else outcome.before
            try:
                self.by_file[outcome.file] = int(from_file_text(outcome.file.resource, text or "", self._version))
            except (InvalidInput, Unsupported):
                self.by_file.pop(outcome.file, None)
        if len(self.by_file) > MOST_KEPT:
            there = {look.pod_directory(pod) for pod in look.pods}
            self.by_file = {
                file: value
                for file, value in self.by_file.items()
                if file.directory in there or posixpath.dirname(file.directory) in there
            }
