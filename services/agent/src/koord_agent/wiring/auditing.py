"""Audit log and its route, by the feature gates.

Part of the composition root (`compose`).
"""

import time

import msgspec
from koordcore.service.run import Shell
from koordcore.values.timestamps import rfc3339

from koord_agent.config.gates import AUDIT_EVENTS, AUDIT_EVENTS_HTTP
from koord_agent.domain.reporting.audit import AuditEvent
from koord_agent.settings import AgentSettings
from koord_agent.shell.routes.audit_routes import audit_routes
from koord_agent.shell.store.audit_log import AuditLog, AuditQueries, AuditSink


def audit_log_of(shell: Shell[AgentSettings]) -> AuditLog | None:
    """Create the audit log and add its route; None if its gates are off or its folder is not writable."""
    settings = shell.settings
    if not settings.feature_gates.enabled(AUDIT_EVENTS):
        return None
    try:
        log = AuditLog(
            settings.audit_log_dir,
            verbose=settings.audit_verbose,
            max_disk_mb=settings.audit_max_disk_space_mb,
            now=shell.clock.now,
        )
    except OSError as error:
        shell.log.error("audit_log_unusable", reason=str(error))
        return None
    if settings.feature_gates.enabled(AUDIT_EVENTS_HTTP):
        queries = AuditQueries(
            settings.audit_log_dir,
            readers=settings.audit_max_concurrent_readers,
            largest_page=settings.audit_max_events_limit,
        )
        shell.http.routes.extend(audit_routes(log, queries, time.monotonic))
    return log


def audit_sink(log: AuditLog, shell: Shell[AgentSettings]) -> AuditSink:
    """Return a function that writes events to the audit log, with the time of the service's clock."""

    def write(event: AuditEvent, verbosity: int) -> None:
        log.write(msgspec.structs.replace(event, created_at=rfc3339(shell.clock.now())), verbosity, time.monotonic())

    return write
