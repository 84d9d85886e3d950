"""Webhook `/validate-configmap`: deny an slo-controller-config whose changed sections are not valid.

Source:
    manager spec, 12
"""

from collections.abc import Iterable, Mapping, Sequence

from koordcore.protocol.config.admission import NodeLabels, validate_config_map

from koord_manager.domain.admission.json_object import seen, text, texts
from koord_manager.domain.admission.request import JsonObject, Operation, Violation
from koord_manager.domain.config_checks.cautions import cautions


def validate_config(
    operation: Operation,
    config: JsonObject,
    old: JsonObject | None,
    *,
    ours: tuple[str, str],
    namespace: str,
    nodes: Iterable[NodeLabels],
    check_names: bool,
) -> list[Violation]:
    """Return the first violation in a changed section of slo-controller-config, as a list of one or no violation.

    Other ConfigMaps and deletions are allowed.

    Args:
        operation: What the request does with the ConfigMap.
        config: The submitted ConfigMap.
        old: The stored ConfigMap, or None if there is none.
        ours: Namespace and name of slo-controller-config.
        namespace: Namespace of the request, for an object without one.
        nodes: All nodes with their labels, because no two entries of a section may select the same node.
        check_names: Whether the names of node strategies must be set and unique (--node-strategy-name-need-check).

    Raises:
        InvalidInput: The ConfigMap has the wrong shape.

    Source:
        manager spec, 12; vectors manager/configmap_validate
    """
    if operation is Operation.DELETE or not _is(config, ours, namespace):
        return []
    old_data = texts(old, "data") if old is not None else {}
    return check_data(texts(config, "data"), old_data, list(nodes), check_names=check_names)


def config_cautions(config: JsonObject, *, ours: tuple[str, str], namespace: str) -> tuple[str, ...]:
    """Return the warnings about values of an slo-controller-config that are valid and probably wrong.

    The result is empty for other ConfigMaps.

    Args:
        config: The ConfigMap.
        ours: Namespace and name of slo-controller-config.
        namespace: Namespace of the request, for an object without one.

    Raises:
        InvalidInput: The ConfigMap has the wrong shape.
    """
    return cautions(texts(config, "data")) if _is(config, ours, namespace) else ()


def _is(config: JsonObject, ours: tuple[str, str], namespace: str) -> bool:
    metadata = seen(config, "metadata")
    return (text(metadata, "namespace") or namespace, text(metadata, "name")) == ours


def check_data(
    data: Mapping[str, str], old_data: Mapping[str, str], nodes: Sequence[NodeLabels], *, check_names: bool
) -> list[Violation]:
    """Check the sections that differ between `old_data` and `data`.

    Return the first violation as a list of one or none.

    Args:
        data: Section key -> JSON text of the submitted ConfigMap.
        old_data: Section key -> JSON text of the stored ConfigMap, or empty if there is none.
        nodes: All nodes with their labels.
        check_names: Whether the names of node strategies must be set and unique.
    """
    result = validate_config_map(data, old_data, nodes, check_names=check_names, require_both_bounds=True)
    if result.allowed or result.reason is None:
        return []
    return [Violation(rule=str(result.reason), field=result.field, message=result.http_message())]
