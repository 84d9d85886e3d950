"""Compare the epoch of the log with that of the cluster before a term begins.

A manager whose log is older than the cluster's newest log gives up the lease, so that a manager with the newer log
leads. It competes again once its own log is of the cluster's epoch.

Source:
    event-bus spec, 9.3
"""

import asyncio
import contextlib
from typing import Final

from koordcore.events.gateway import GENESIS
from koordcore.ports.clock import Clock
from koordcore.ports.leadership import Leadership, Term
from koordcore.service.telemetry.logging import Logger
from koordcore.state.aggregates import GenesisState
from koordcore.values.timestamps import rfc3339

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.pod_status_writes import event_creation, log_outdated
from koord_manager.shell.gateway.api import KubernetesApi, Unreachable, send
from koord_manager.shell.gateway.genesis import GenesisRefused, cluster_epoch

OUTDATED_SECONDS: Final = 5.0
"""Pause between two reads of the cluster's epoch while this instance must not lead."""


class EpochCheck:
    """Decides whether this instance may lead with its log.

    Args:
        view: The folded log, which contains its own epoch.
        leadership: The lease that is given up if the log is outdated.
        clock: Gives the time of the Kubernetes event about an outdated log.
        instance: Name of this process in that event.
        namespace: Namespace of the ConfigMap with the cluster's epoch.
    """

    def __init__(
        self,
        api: KubernetesApi,
        view: ManagerView,
        leadership: Leadership,
        clock: Clock,
        logger: Logger,
        instance: str,
        namespace: str,
    ) -> None:
        self._api = api
        self._view = view
        self._leadership = leadership
        self._clock = clock
        self._logger = logger
        self._instance = instance
        self._namespace = namespace
        self._outdated: str | None = None
        self._unknown: tuple[Term, str] | None = None

    @property
    def problem(self) -> str | None:
        """Reason why this instance must not lead, or None. An unknown epoch is a problem of the present leader only."""
        if self._outdated is not None:
            return self._outdated
        term, problem = self._unknown or (None, None)
        return problem if term is not None and self._leadership.term is term else None

    async def allows(self, term: Term) -> bool:
        """Return whether this instance may begin a term, because its log is the newest log of the cluster.

        If the cluster has a newer log, give up the lease, wait until the own log is the newest, and return False. If
        the epoch of the cluster is unknown, return False after a pause.
        """
        try:
            self._outdated = await self._compare()
        except (GenesisRefused, Unreachable) as error:
            self._unknown = (term, f"the cluster's epoch is not known: {error}")
            self._logger.error("epoch_unknown", problem=str(error))
            await asyncio.sleep(OUTDATED_SECONDS)
            return False
        self._unknown = None
        if self._outdated is None:
            return True
        await self._leave_to_others(self._outdated)
        return False

    async def _leave_to_others(self, problem: str) -> None:
        """Give up the lease for a manager with a newer log, until the log of this one is of the cluster's epoch."""
        self._logger.error("log_outdated", problem=problem)
        self._leadership.withdraw(problem)
        now = rfc3339(self._clock.now().replace(microsecond=0))
        await send(self._api, event_creation(log_outdated(self._namespace, problem), now, self._instance))
        while self._outdated is not None:
            await asyncio.sleep(OUTDATED_SECONDS)
            with contextlib.suppress(GenesisRefused, Unreachable):
                self._outdated = await self._compare()
        self._leadership.stand()

    async def _compare(self) -> str | None:
        """Return the reason why the log must not be used, or None if it may.

        Raises:
            GenesisRefused: The epoch of the cluster cannot be read.
            Unreachable: The API server does not answer.
        """
        state = self._view.state.get(GENESIS)
        ours = state.cluster_epoch if isinstance(state, GenesisState) else 0
        theirs = await cluster_epoch(self._api, self._namespace)
        return f"the log is of epoch {ours}, the cluster of {theirs}" if theirs > ours else None
