"""The projector's main loop: fold facts into Postgres in strict order, rows and position in one transaction.

An error ends the session. The next session loads the tables and continues from there. Observations and explanations are
archived separately (`archive`). Read `projecting.session` next, then `fold.projection`.
"""

from koordcore.service.clock import host_unix_nanos

from koord_projector.context import ProjectorContext
from koord_projector.projecting.feed import open_feed
from koord_projector.projecting.recovery import SESSION_ERRORS, Recovery
from koord_projector.projecting.session import FactsRefused, Refusals, Session, open_session, wait_for_skip


async def project_facts(context: ProjectorContext) -> None:
    """Fold facts until cancelled. Cancellation rolls back the current transaction, which the next start repeats."""
    recovery, refusals = Recovery(context), Refusals()
    while True:
        try:
            # 1. load the projection from the tables
            async with open_session(context, refusals) as session:
                recovery.opened()
                await _project(session, recovery)
        except SESSION_ERRORS as error:
            if isinstance(error, FactsRefused):
                refusals.note(error)
            await recovery.after(error)


async def _project(session: Session, recovery: Recovery) -> None:
    context, projection = session.context, session.projection
    async with open_feed(context.log, projection.position, context.progress) as feed:
        while True:
            # 2. take what the log has delivered
            events = await feed.take(context.batch_events)
            for part in session.refusals.parts(events):
                began_nanos = host_unix_nanos()
                # 3. fold it: pure, see `fold.projection`
                unreadable = await session.fold(part)
                # 4. write rows and position in one transaction
                committed = await session.commit()
                # 5. report to metrics, readiness, traces and live tails
                if committed:
                    recovery.committed()
                    session.report(committed, began_nanos)
                # 6. if an event cannot be read or stored, halt before it until an operator skips it
                if unreadable is not None:
                    await wait_for_skip(session, part, unreadable)
