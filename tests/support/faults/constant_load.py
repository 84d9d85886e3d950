"""Pods that are submitted and deleted all the time, whatever dies meanwhile, and what the log must say about them."""

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import httpx
from koordcore.events import CATALOGUE
from koordcore.events.objects import PodSpecDeleted
from koordctl.access.log import LogTrouble, open_log
from koordctl.demo.invariants import Audit
from support.rolling_restart import pod_manifest

PER_REQUEST: Final = 10
MOST_PODS: Final = 300
"""Live pods from which on some are deleted."""
_RETRY_SECONDS: Final = 0.1
_DONE: Final = {"created", "unchanged", "deleted", "not-found"}


class Load:
    """Clients that repeat each request at one manager after the other, until all its documents were taken.

    Args:
        managers: Base URLs.

    Attributes:
        acknowledged: Names of the pods that a manager said it has created.
        live: Names of these pods whose deletion was not requested.
    """

    def __init__(self, managers: Sequence[str]) -> None:
        self._clients = [httpx.AsyncClient(base_url=url, trust_env=False, timeout=10) for url in managers]
        self._asked = 0
        self.acknowledged: set[str] = set()
        self.live: set[str] = set()
        self._next = 0

    async def send(self, path: str, documents: Sequence[dict[str, Any]]) -> None:
        """Repeat a request until every document was taken. Applying or deleting twice is harmless."""
        content = json.dumps({"kind": "List", "items": [*documents]})
        while True:
            with contextlib.suppress(httpx.HTTPError):
                response = await self._clients[self._asked].post(path, content=content)
                if response.headers.get("content-type", "").startswith("application/json"):
                    results = response.json().get("results", [])
                    if len(results) == len(documents) and {result["action"] for result in results} <= _DONE:
                        return
            self._asked = (self._asked + 1) % len(self._clients)
            await asyncio.sleep(_RETRY_SECONDS)

    async def submit(self) -> None:
        """Submit some pods."""
        numbers = range(self._next, self._next + PER_REQUEST)
        self._next += PER_REQUEST
        await self.send("/v1/apply", [pod_manifest(number) for number in numbers])
        names = {f"pod-{number}" for number in numbers}
        self.acknowledged |= names
        self.live |= names

    async def delete(self, rng: random.Random) -> None:
        """Delete as many live pods as a request submits."""
        names = rng.sample(sorted(self.live), min(PER_REQUEST, len(self.live)))
        self.live.difference_update(names)
        await self.delete_named(names)

    async def delete_named(self, names: Sequence[str]) -> None:
        """Delete pods."""
        await self.send("/v1/delete", [{"kind": "Pod", "namespace": "default", "name": name} for name in names])

    async def run(self, rng: random.Random, pods_per_second: float, stop: asyncio.Event) -> None:
        """Submit and delete pods until told to stop."""
        while not stop.is_set():
            await self.submit()
            if len(self.live) > MOST_PODS:
                await self.delete(rng)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), PER_REQUEST / pods_per_second)

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            await client.aclose()


class Watched:
    """The log as a reader sees it while servers and services die.

    Args:
        var: Folder of a running stack. None: the environment has the address of the log.

    Attributes:
        audit: The invariants of all facts so far.
        ids: Id of the fact at each position.
        submitted: Names of all pods that were ever added.
        deleted: Names of all pods that were ever deleted.
    """

    def __init__(self, var: Path | None = None) -> None:
        self._var = var
        self.audit = Audit()
        self.ids: dict[int, str] = {}
        self.position = 0
        self.submitted: set[str] = set()
        self.deleted: set[str] = set()

    async def catch_up(self) -> bool:
        """Read the facts up to the end of the log. Return False if the log does not answer now."""
        try:
            async with open_log(self._var) as log:
                head = await log.bus.events.head()
                async for batch in log.bus.events.history(self.position, head.last_seq):
                    for stored in batch:
                        event = CATALOGUE.read(stored)
                        assert event is not None
                        assert stored.seq == self.position + 1, f"position {stored.seq} follows {self.position}"
                        self.audit.see(stored, event)
                        if stored.type == "PodSpecAdded":
                            self.submitted.add(self.audit.name_of(stored.ref.id))
                        elif isinstance(event, PodSpecDeleted):
                            self.deleted.add(f"{event.namespace}/{event.name}")
                        self.ids[stored.seq] = stored.event_id
                        self.position = stored.seq
        except LogTrouble:
            return False
        return True

    @property
    def alive(self) -> set[str]:
        """Names of the pods that are there."""
        return {self.audit.name_of(uid) for uid in self.audit.live_pods()}

    @property
    def doubled(self) -> list[str]:
        """Names that more than one pod has."""
        names = Counter(self.audit.name_of(uid) for uid in self.audit.live_pods())
        return sorted(name for name, count in names.items() if count > 1)

    async def lost(self) -> list[str]:
        """Read the whole log again: a sentence for each position that has another fact than before, or none.

        Raises:
            LogTrouble: The log does not answer.
        """
        found: dict[int, str] = {}
        async with open_log(self._var) as log:
            async for batch in log.bus.events.history(0, self.position):
                found.update({stored.seq: stored.event_id for stored in batch})
        return [
            f"position {seq} had fact {known}, now {found.get(seq, 'none')}"
            for seq, known in self.ids.items()
            if found.get(seq) != known
        ]
