"""Record the warnings about the configuration in force as a fact.

Source:
    manager spec, 18 (limits to state to users)
"""

from koordcore.events.envelope import AggregateRef, Draft, namespaced_token
from koordcore.events.nodepolicy import ConfigWarned

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.config_checks.cautions import config_warnings
from koord_manager.domain.configuration.node_policies import NodePolicies, slo_config_state


def warning_drafts(policies: NodePolicies, view: ManagerView) -> list[Draft]:
    """Return the fact `ConfigWarned` if the warnings about slo-controller-config differ from the recorded ones.

    Otherwise return an empty list.
    """
    state = slo_config_state(view)
    warnings = config_warnings(policies.config) if state is not None and state.object is not None else {}
    if state is None or warnings == state.warnings:
        return []
    names = view.admission.names
    event = ConfigWarned(
        namespace=names.slo_namespace, name=names.slo_name, warnings=warnings, config_version=policies.version
    )
    ref = AggregateRef("config", namespaced_token(names.slo_namespace, names.slo_name))
    return [Draft(ref, event, view.state.last_seq(ref))]
