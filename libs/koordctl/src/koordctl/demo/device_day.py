"""The results of the day on which devices fail (`failing_devices`): a table for people, JSON for programs."""

from koordctl.demo.summary import Checks, Invariant, by_count
from koordctl.render.units import duration_text


class DeviceDaySummary(Checks, frozen=True, kw_only=True):
    """Summary of the demo with failing devices: pods, failures, and broken rules after all pods have ended.

    Attributes:
        pods: Submitted pods.
        placed: Number of placements.
        pods_with_devices: Number of placements with devices.
        pending_reasons: Reason -> number of pods that were pending at the end of the day.
        failed: Device type -> how often a device became unhealthy or vanished.
        recovered: Device type -> how often a device became healthy again.
        vanished_nodes: Number of nodes whose devices all vanished for a time.
        told: Number of facts about unhealthy devices of a pod.
        given_unhealthy: Placements with an unhealthy device.
        given_twice: Allocations of CPUs, devices or shares that another pod held already.
        untold_pods: Pods without a fact about a failure or recovery of their devices.
        not_returned: Nodes or pods that still held resources after all pods had ended.
        events: Number of facts in the log.
        startup_s: Seconds until the stack was ready.
        wall_s: Seconds of the whole run.
        speed: Simulated seconds per real second.
    """

    pods: int
    placed: int
    pods_with_devices: int
    pending_reasons: dict[str, int]
    failed: dict[str, int]
    recovered: dict[str, int]
    vanished_nodes: int
    told: int
    given_unhealthy: int
    given_twice: int
    untold_pods: int
    not_returned: int
    events: int
    startup_s: float
    wall_s: float
    speed: float

    def rows(self) -> list[tuple[str, str]]:
        """Return the rows of the table of results, as (label, value)."""
        return [
            ("pods", f"{self.pods:,}"),
            ("placements", f"{self.placed:,}, {self.pods_with_devices:,} of them with devices"),
            ("pods pending in the evening", f"{sum(self.pending_reasons.values()):,}"),
            *((f"  {reason}", f"{count:,}") for reason, count in by_count(self.pending_reasons)),
            *(
                (f"{type_} devices that failed, came back", f"{count:,}, {self.recovered.get(type_, 0):,}")
                for type_, count in self.failed.items()
            ),
            ("nodes whose devices vanished", f"{self.vanished_nodes:,}"),
            ("pods told of unhealthy devices", f"{self.told:,}"),
            ("events", f"{self.events:,}"),
            ("stack ready after", duration_text(self.startup_s)),
            ("whole run", duration_text(self.wall_s)),
        ]

    def invariants(self) -> list[Invariant]:
        """Return each rule with the number of its violations."""
        return [
            *super().invariants(),
            Invariant(
                "no pod was given an unhealthy device", not self.given_unhealthy, f"{self.given_unhealthy} found"
            ),
            Invariant("nothing was given twice", not self.given_twice, f"{self.given_twice} found"),
            Invariant("pods were told of their devices", not self.untold_pods, f"{self.untold_pods} were not"),
            Invariant("ended pods returned everything", not self.not_returned, f"{self.not_returned} did not"),
        ]
