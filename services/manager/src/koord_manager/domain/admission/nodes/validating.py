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
    """Return a violation if changed labels make a node match two entries of one section of slo-controller-config.

    The result is a list of one or no violation. It is empty on CREATE, if the labels are unchanged, and without
    slo-controller-config.

    Args:
        operation: What the request does with the node.
        node: The submitted node.
        old: The stored node, or None if there is none.
        config: Data of slo-controller-config, or None if it does not exist.

    Raises:
        InvalidInput: The node has the wrong shape.

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
