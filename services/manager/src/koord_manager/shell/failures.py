"""Report the decisions that failed in a cycle, in the log and as metrics."""

from koordcore.events.envelope import name_from_token
from koordcore.state.aggregates import WorkloadState

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controller_names import DESIRED_STATE, HEALTH, NODE_POLICIES, OVERCOMMIT, WORKLOAD
from koord_manager.shell.context import ManagerContext

_NODE_CONTROLLERS = frozenset((*NODE_POLICIES, OVERCOMMIT, HEALTH, DESIRED_STATE))


def report_failures(context: ManagerContext) -> None:
    """Log each new failure of the cycle with its object and cause, and count all failures."""
    queue = context.view.queue
    failures = queue.take_failures()
    for failure in failures:
        if failure.is_new:
            context.logger.error(
                "decision_failed",
                controller=failure.controller,
                object=object_name(context.view, failure.controller, failure.name),
                error=f"{type(failure.error).__name__}: {failure.error}",
                retries=failure.retries,
                retry_in_seconds=failure.delay_seconds,
                exc_info=failure.error,
            )
    if context.metrics is not None:
        context.metrics.failed(failures, queue.failing())


def object_name(view: ManagerView, controller: str, name: str) -> str:
    """Return the name of an object as users know it: the name of a node, or `default/web (<uid>)` for a workload.

    Args:
        view: The folded state of the cluster.
        controller: Name of a controller.
        name: Key of the object in the controller's queue.
    """
    if not name:
        return "(the whole controller)"
    if controller in _NODE_CONTROLLERS:
        return name_from_token(name)
    if controller == WORKLOAD:
        state = view.state.of_kind(WorkloadState).get(name)
        meta = state.object.metadata if state else None
        return f"{meta.namespace}/{meta.name} ({name})" if meta else name
    return name
