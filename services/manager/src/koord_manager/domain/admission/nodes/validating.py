"""Webhook `/validate-node`: deny labels with which a node matches two entries of one configuration section.

Source:
    manager spec, 11.2
"""

from collections.abc import Mapping
from typing import Final

from koordcore.protocol.config.admission import NodeLabels, validate_node_labels

from koord_manager.domain.admission.json_object import seen, text, texts
from koord_manager.domain.admission.request import JsonObject, Operation, Violation

PLUGIN: Final = "SLOManagerConfigConflictForNode"


def validate_node(
    operation: Operation, node: JsonObject, old: JsonObject | None, config: Mapping[str, str] | None
) -> list[Violation]:
    """Return the conflict that changed labels cause, as a list of one or no violation.

    On CREATE, and without slo-controller-config, there is no conflict.

    Raises:
        InvalidInput: The node cannot be read.

    Source:
        manager spec, 11.2
    """
    labels = texts(node, "metadata", "labels")
    if operation is not Operation.UPDATE or config is None or labels == texts(old or {}, "metadata", "labels"):
        return []
    name = text(seen(node, "metadata"), "name")
    result = validate_node_labels(config, NodeLabels(name=name, labels=labels))
    if result.allowed or result.reason is None:
        return []
    return [Violation(rule=str(result.reason), field="metadata.labels", message=result.http_message())]
