"""Judge the ConfigMap slo-controller-config: the warnings, and whether it is refused.

A text of 900 kB with 10,000 entries takes a second. So the question is a value that needs no view: the shell may judge
it in a thread, while the event loop answers other requests.
"""

from collections.abc import Mapping
from typing import NamedTuple

from koordcore.events.envelope import name_from_token
from koordcore.protocol import objects as kube
from koordcore.protocol.config.admission import NodeLabels, config_faults
from koordcore.protocol.manifests import InvalidManifest
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.config_maps import cautions, check_data, check_slo_config
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.recorded_object import our_sections
from koord_manager.domain.cluster.view import ManagerView


class ConfigQuestion(NamedTuple):
    """What the verdict depends on."""

    data: Mapping[str, str]  # The data as it was written
    old_data: Mapping[str, str]  # The data in force; empty if there is none
    nodes: tuple[NodeLabels, ...]  # No two entries may select the same of these nodes
    checks_as_webhook: bool  # Whether the rules of Koordinator's webhook apply, too
    checks_names: bool  # Whether the webhook checks the names of entries


class ConfigVerdict(NamedTuple):
    warnings: tuple[str, ...]
    violations: list[InvalidInput]  # First violations; empty if the configuration is accepted
    refusal: InvalidManifest | None  # Every violation, for the user; None if the configuration is accepted


def config_question(view: ManagerView, config: kube.ConfigMap, options: Options) -> ConfigQuestion | None:
    """Return the question about a ConfigMap; None if it is not slo-controller-config."""
    names, meta = view.admission.names, config.metadata
    if (meta.namespace, meta.name) != (names.slo_namespace, names.slo_name):
        return None
    state = view.config(meta.namespace, meta.name)
    return ConfigQuestion(
        data=dict(config.data),
        old_data=state.object.data if state is not None and state.object is not None else {},
        nodes=tuple(
            NodeLabels(name=name_from_token(token), labels=node.metadata.labels)
            for token in view.nodes()
            if (node := view.node(token))
        ),
        checks_as_webhook=options.enabled("ConfigMapValidatingWebhook"),
        checks_names=options.check_strategy_names,
    )


def judge_config(question: ConfigQuestion) -> ConfigVerdict:
    warnings, data = cautions(question.data), our_sections(question.data)
    if data == question.old_data:
        return ConfigVerdict(warnings, [], None)
    violations = check_slo_config(data, question.old_data, question.nodes)
    if question.checks_as_webhook:
        found = check_data(data, question.old_data, question.nodes, check_names=question.checks_names)
        violations += [InvalidInput(f"within rule {each.rule}", each.message, each.field) for each in found]
    return ConfigVerdict(warnings, violations, _with_every_fault(data, violations) if violations else None)


def _with_every_fault(data: Mapping[str, str], violations: list[InvalidInput]) -> InvalidManifest:
    """Return an error with all violations of a configuration, so that a user can correct them at once."""
    faults = config_faults(data)
    told = {fault.path for fault in faults}
    return InvalidManifest([*faults, *(violation for violation in violations if violation.path not in told)])
