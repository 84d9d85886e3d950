"""The configuration controller: use a changed slo-controller-config, and queue every node."""

from datetime import datetime

from koordcore.events.envelope import Draft
from koordcore.events.nodepolicy import ConfigWarned

from koord_manager.domain.configuration.warnings import warning_drafts
from koord_manager.domain.controller_names import CONFIGURATION, DESIRED_STATE, NODE_POLICIES, OVERCOMMIT
from koord_manager.domain.controllers import Controllers
from koord_manager.shell.context import ManagerContext
from koord_manager.shell.reconcile import reconcile


async def reconcile_configuration(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Put a changed slo-controller-config into force, queue every node, and return the number of appended facts.

    The facts are warnings about the configuration. No-op if the ConfigMap did not change.
    """

    def decide(_: str) -> list[list[Draft]]:
        view, policies = context.view, controllers.policies
        policies.refresh(view)
        for controller in (*NODE_POLICIES, OVERCOMMIT, DESIRED_STATE):
            view.queue.add_all(controller, view.nodes())
        drafts = warning_drafts(policies, view)
        for draft in drafts:
            if isinstance(draft.event, ConfigWarned):
                for config_field, sentence in draft.event.warnings.items():
                    context.logger.warning("config_warning", field=config_field, reason=sentence)
        return [[draft] for draft in drafts]

    return len(await reconcile(context, CONFIGURATION, context.view.queue.take(CONFIGURATION), decide, now))
