"""Interface by which the adapters of the log report measurements: appends, conflicts, lag, dead letters.

`koordcore.service.telemetry.metrics.BusMetrics` exports them to Prometheus.

Source: event-bus spec, 12.
"""


class BusMetrics:
    """Receives measurements of how this process uses the log. This base class discards them."""

    def append(self, outcome: str, seconds: float) -> None:
        """Count an append and its duration in real seconds. `outcome`: `appended`, `duplicate`, `conflict`, `full`,
        `unavailable` or `misconfigured`. `seconds`: duration with all repetitions.
        """

    def batch_refused(self) -> None:
        """Count an attempt of a batch that the server refused because too many batches were open."""

    def conflict(self, kind: str) -> None:
        """Count an append that the log refused because an aggregate of this kind had newer events."""

    def follower_lag(self, fold: str, *, events: int, seconds: float) -> None:
        """Report how far a fold is behind its stream: number of unread events, and age of the oldest one in seconds."""

    def follower_halted(self, fold: str, *, halted: bool) -> None:
        """Report whether a fold has stopped before an event that it cannot decode or apply."""

    def dlq_depth(self, consumer: str, depth: int) -> None:
        """Report the number of parked work items (dead letters) of a consumer."""

    def gap(self, fold: str) -> None:
        """Count a gap in the sequences of a stream, after which the fold read again from its last event."""

    def node_refused(self, node: str, what: str) -> None:
        """Count a message of a node that was not taken. `what`: kind of refusal, see `koordcore.bus.refusals`."""

    def log_size(self, used: int, limit: int) -> None:
        """Report the size of the stream of facts and its largest size, both in bytes. At the limit it is full."""

    def observation_dropped(self, stream: str, reason: str) -> None:
        """Count a message of a lossy stream that was not sent. `stream`: `obs`, `explanations` or `audit`. `reason`:
        `too-large` for the server, or `away`: newer ones took its place while there was no connection.
        """

    def snapshot_age(self, fold: str, seconds: float) -> None:
        """Report the age in seconds of the newest snapshot of a fold."""


NO_METRICS = BusMetrics()
