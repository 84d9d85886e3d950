"""Compare the records with the runtime, and forget what was removed without a call through the proxy.

An administrator may remove a pod at the runtime's own socket, or the runtime may lose its state. The kubelet then never
removes that pod through the proxy, so its records would stay for ever.

Source: runtime spec, 5.5 (deletion).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from koordcore.service.telemetry.logging import logger

from koord_criproxy.records import Store

COMPARE_SECONDS: Final = 300.0
"""Interval between two comparisons."""
_log: Final = logger("criproxy")

ListIds = Callable[[], Awaitable[frozenset[str]]]
"""Returns the ids of all sandboxes and containers that the runtime has, running or not. It may raise an error."""


class RuntimeAway(Exception):
    """The container runtime did not answer. The message names the call and the reason."""


class StoreReconciler:
    """Forgets records whose sandbox or container two lists of the runtime in a row lack.

    One list is not enough: a runtime that has just started may still read its state.
    """

    def __init__(self, store: Store, listed: ListIds) -> None:
        self._store = store
        self._listed = listed
        self._missing: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Compare every five minutes, until cancelled."""
        while True:
            await asyncio.sleep(COMPARE_SECONDS)
            await self.compare()

    async def compare(self) -> None:
        """If the runtime does not answer, or answers what nobody expected, all records stay."""
        known = self._store.ids()  # before the list: what is created meanwhile is not compared
        try:
            present = await self._listed()
        except Exception as error:  # noqa: BLE001 - no answer of the runtime ends the proxy
            reason = str(error) if isinstance(error, RuntimeAway) else repr(error)
            _log.warning("records_not_compared", error=reason)
            return
        missing = known - present
        gone = missing & self._missing
        self._missing = missing - gone
        if gone:
            self._store.drop(gone)
            _log.info("records_dropped", ids=sorted(gone))
