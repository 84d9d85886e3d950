"""The webhooks of nodes.

`/mutate-node-status` multiplies the allocatable cpu and memory of a node by its amplification ratios. `/validate-node`
denies labels with which a node matches two entries of one configuration section.

Source:
    manager spec, 11.1, 11.2
"""

from collections.abc import Mapping
from typing import Final, cast

from koordcore.protocol import keys
from koordcore.protocol.amplification import amplify_node_update
from koordcore.protocol.config.admission import NodeLabels, validate_node_labels
from koordcore.protocol.objects import Quantities
from koordcore.values.resources import parse_resources

from koord_manager.domain.admission.json_object import child, copied, seen, text, texts
from koord_manager.domain.admission.request import JsonObject, Operation, Violation

STEP: Final = "NodeResourceAmplification"


def amplify_node(operation: Operation, node: JsonObject, old: JsonObject | None) -> tuple[JsonObject, list[str]]:
    """Multiply allocatable cpu and memory of a node by its amplification ratios.

    Return the node, and the names of the steps that changed it. The amounts before the multiplication are stored in
    the annotation `raw-allocatable`. If the node has no ratio, its amounts stay, and an old annotation is removed.

    Args:
        node: The submitted node, not changed.

    Raises:
        InvalidInput: A ratio, the annotation `raw-allocatable` or a quantity is invalid.

    Source: manager spec, 11.1; vectors manager/amplification_webhook.
    """
    if operation is not Operation.UPDATE:
        return node, []
    annotations = texts(node, "metadata", "annotations")
    has_ratio = bool(annotations.get(keys.RESOURCE_AMPLIFICATION_RATIO))
    # 1. no ratio: what we kept is forgotten, the kubelet restores allocatable by itself
    if not has_ratio:
        if keys.RAW_ALLOCATABLE not in annotations:
            return node, []
        mutated = copied(node)
        del seen(mutated, "metadata", "annotations")[keys.RAW_ALLOCATABLE]
        return mutated, [STEP]
    # 2. nothing to amplify
    allocatable = cast("Quantities", seen(node, "status", "allocatable"))
    if not allocatable:
        return node, []
    # 3. and 4.
    old_allocatable = cast("Quantities", seen(old or {}, "status", "allocatable"))
    update = amplify_node_update(annotations, allocatable, old_allocatable)
    before = parse_resources(allocatable)
    raw = update.raw_allocatable
    mutated = copied(node)
    written = child(child(mutated, "status"), "allocatable")
    for name, amount in update.allocatable.items():
        if amount != before.get(name):
            written[name] = amount.canonical()
    if raw is not None and raw != "{}":
        child(child(mutated, "metadata"), "annotations")[keys.RAW_ALLOCATABLE] = raw
    return (mutated, [STEP]) if mutated != node else (node, [])


PLUGIN: Final = "SLOManagerConfigConflictForNode"


def validate_node(
    operation: Operation, node: JsonObject, old: JsonObject | None, config: Mapping[str, str] | None
) -> list[Violation]:
    """Return a violation if changed labels make a node match two entries of one section of slo-controller-config.

    A list of one or none; none on CREATE.

    Raises:
        InvalidInput: The node has the wrong shape.
    """
    labels = texts(node, "metadata", "labels")
    if operation is not Operation.UPDATE or config is None or labels == texts(old or {}, "metadata", "labels"):
        return []
    name = text(seen(node, "metadata"), "name")
    result = validate_node_labels(config, NodeLabels(name=name, labels=labels))
    if result.allowed or result.reason is None:
        return []
    return [Violation(rule=str(result.reason), field="metadata.labels", message=result.http_message())]
