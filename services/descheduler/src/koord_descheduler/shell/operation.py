"""Records what people did with the descheduler: its configuration, dry runs, and rounds that they asked for.

Source:
    descheduler spec, 12
"""

import asyncio
from pathlib import Path
from typing import Final

from koordcore.events.descheduling import DeschedulerConfigured, DryRunAnswered
from koordcore.events.envelope import AggregateRef, Draft, Event
from koordcore.ports.leadership import Term
from koordcore.service.process_user import user_of_the_process
from koordcore.state.descheduling import DeschedulerState

from koord_descheduler.domain.config.document import DeschedulerConfiguration
from koord_descheduler.domain.config.effective import changed_fields, configuration_hash
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.shell.facts import PAUSE_SECONDS, FactWriter
from koord_descheduler.shell.leading import Leading

_REF: Final = AggregateRef("descheduler", "default")


class OperationRecorder:
    """Appends facts about the descheduler itself. `source`: file of the configuration; None for the defaults."""

    def __init__(
        self,
        builder: ViewBuilder,
        leading: Leading,
        facts: FactWriter,
        configuration: DeschedulerConfiguration,
        source: Path | None,
    ) -> None:
        self._builder = builder
        self._leading = leading
        self._facts = facts
        self._configuration = configuration
        self._source = "" if source is None else str(source)
        self._writing = asyncio.Lock()
        """Held while a fact is appended and folded. Each fact expects the one before; users ask at the same time."""

    async def run(self) -> None:
        """At the start of each term, record the configuration if it differs from the former leader's.

        While the log is full or does not answer, try again after a pause, and also if another instance recorded a fact
        first. Runs until cancelled.
        """
        while True:
            term = await self._leading.term()
            known = self._before
            if not await self._record_configuration(term):
                takes_nothing = self._facts.takes_nothing
                await asyncio.sleep(PAUSE_SECONDS)
                if takes_nothing or self._before != known:
                    continue
            await self._leading.lost(term)

    async def asked(self, event: DryRunAnswered) -> bool:
        """Record that a dry run was answered. Without leadership, wait for it.

        Return whether the log has stored the fact.
        """
        return await self._append(event, await self._leading.term())

    async def _record_configuration(self, term: Term) -> bool:
        """Record the configuration if the log has another one. Return whether the log has it now."""
        before = self._before
        after = self._configuration.as_json()
        hash_ = configuration_hash(self._configuration)
        if before is not None and before.configuration_hash == hash_:
            return True
        is_first = before is None or not before.configuration_hash
        event = DeschedulerConfigured(
            configuration_hash=hash_,
            configuration=after,
            source=self._source,
            asked_by=user_of_the_process(),
            changes={} if is_first or before is None else changed_fields(before.configuration, after),
        )
        return await self._append(event, term)

    @property
    def _before(self) -> DeschedulerState | None:
        return self._builder.state.of_kind(DeschedulerState).get(_REF.id)

    async def _append(self, event: Event, term: Term) -> bool:
        async with self._writing:
            position, known = self._builder.state.position, self._before
            draft = Draft(_REF, event, 0 if known is None else known.seq)
            stored = await self._facts.append([draft], f"operation/{position}/{type(event).__name__}", position, term)
            if stored is not None:
                await self._leading.folded(stored.last_seq)
            return stored is not None
