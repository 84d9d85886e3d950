"""The local store of an agent: unsent facts, published pods, and the last desired state.

One SQLite file per process. A fact and the pods that it announces are stored in one transaction, so a restart neither
repeats nor loses facts. A cycle saves some of the changed desired states.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from koordcore.ports.desired import DesiredNode
from koordcore.service.outbox import FactFile, NotStored, QueuedFact, SealedFact
from koordcore.service.telemetry.logging import Logger
from koordcore.values import codec

_SCHEMA = """
create table if not exists announced (node text, uid text, primary key (node, uid)) without rowid;
create table if not exists topology (node text primary key, digest text) without rowid;
create table if not exists desired (node text primary key, at_ms integer, digest text, body blob) without rowid;
"""
SAVED_PER_CYCLE: Final = 200


class LocalStore(FactFile):
    """The file in which an agent keeps unsent facts, published pods and the last desired states. Only one task uses it.

    Without a folder it is in memory: it is better to publish some starts again than not to enforce.
    """

    def __init__(self, folder: Path | None) -> None:
        super().__init__(folder, name="agent.sqlite", tables=_SCHEMA)

    def add(
        self,
        facts: Iterable[SealedFact],
        *,
        started: Mapping[str, Iterable[str]],
        stopped: Mapping[str, Iterable[str]],
        topologies: Mapping[str, str] | None = None,
    ) -> list[QueuedFact]:
        """Store facts and the pods that they announce as started or stopped, in one transaction.

        `started` and `stopped` have UIDs by node, `topologies` digests: node -> of its reported topology, `devices of
        <node>` -> of its devices.

        Raises:
            NotStored: The disk refused.
        """
        with self.transaction():
            added = self.insert(facts)
            self._db.executemany(
                "delete from announced where node = ? and uid = ?",
                [(node, uid) for node, uids in stopped.items() for uid in uids],
            )
            self._db.executemany(
                "insert or ignore into announced values (?, ?)",
                [(node, uid) for node, uids in started.items() for uid in uids],
            )
            self._db.executemany("insert or replace into topology values (?, ?)", list((topologies or {}).items()))
        return added

    def announced(self) -> dict[str, set[str]]:
        """Node -> UIDs of pods whose start was published and whose end was not."""
        found: dict[str, set[str]] = defaultdict(set)
        for node, uid in self._db.execute("select node, uid from announced"):
            found[node].add(uid)
        return found

    def topologies(self) -> dict[str, str]:
        """With the keys of `add`."""
        return dict(self._db.execute("select node, digest from topology"))

    def save_desired(self, values: Iterable[DesiredNode], at_ms: int) -> None:
        """Each with a digest and the time `at_ms` of the service's clock.

        Raises:
            NotStored: The disk refused.
        """
        with self.transaction():
            self._db.executemany(
                "insert or replace into desired values (?, ?, ?, ?)",
                [(value.node, at_ms, _digest(body := codec.encode(value)), body) for value in values],
            )

    def desired(self, now_ms: int, max_age_ms: float) -> tuple[dict[str, DesiredNode], list[str]]:
        """Return the stored states that are intact and not too old by node, and a sentence about each other state."""
        found: dict[str, DesiredNode] = {}
        problems: list[str] = []
        for node, at_ms, digest, body in self._db.execute("select node, at_ms, digest, body from desired"):
            if not isinstance(body, bytes) or digest != _digest(body):
                problems.append(f"{node}: the stored desired state is damaged")
            elif now_ms - at_ms > max_age_ms:
                problems.append(f"{node}: the stored desired state is {(now_ms - at_ms) // 1000} s old")
            else:
                try:
                    found[node] = codec.decode(body, DesiredNode)
                except codec.DecodeError as error:
                    problems.append(f"{node}: the stored desired state cannot be read: {error}")
        return found, problems


def _digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()


@dataclass(frozen=True, kw_only=True, eq=False)
class DesiredSaver:
    store: LocalStore
    # Returns up to the given number of states that changed since the last call.
    unsaved: Callable[[int], Sequence[DesiredNode]]
    not_saved: Callable[[Iterable[DesiredNode]], None]  # Called with the states that the disk refused
    logger: Logger  # Receives the first error of the disk after a success; further errors in a row are not logged
    _trouble: list[str] = field(default_factory=lambda: [""])

    def save(self, now_ms: int) -> None:
        """If it fails, log the error; the states are stored later."""
        values = self.unsaved(SAVED_PER_CYCLE)
        if not values:
            return
        try:
            self.store.save_desired(values, now_ms)
        except NotStored as error:
            self.not_saved(values)
            if not self._trouble[0]:
                self.logger.error("desired_not_stored", reason=str(error))
            self._trouble[0] = str(error)
        else:
            self._trouble[0] = ""
