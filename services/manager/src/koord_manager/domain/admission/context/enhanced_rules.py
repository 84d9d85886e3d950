"""Rules of the ConfigMap pod-enhanced-validator-config: labels that pods must have.

Source:
    manager spec, 10.6
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from koordcore.protocol import keys, lenient_json
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.request import Violation


class _Rule(msgspec.Struct, rename="camel", frozen=True):
    name: str = ""
    required_labels: list[str] = []
    namespace_whitelist: list[str] = []


@dataclass(frozen=True, slots=True)
class EnhancedRules:
    """Rules of pod-enhanced-validator-config: each lists labels that pods must have, and namespaces that are exempt."""

    enabled: bool = False  # Whether the rules are checked; False without the ConfigMap
    rules: tuple[_Rule, ...] = ()  # The rules in the order of the ConfigMap, in which they are checked


def read_rules(previous: EnhancedRules, data: Mapping[str, str] | None) -> EnhancedRules:
    """Return the rules in the data of the ConfigMap pod-enhanced-validator-config.

    Args:
        previous: The rules until now, which stay if the text of the new ones is not valid JSON.
        data: Data of the ConfigMap, or None if it does not exist; then the rules are off.
    """
    if data is None:
        return EnhancedRules()
    enabled = data.get("enable", "").strip().lower() == "true"
    written = data.get("rules", "")
    try:
        rules = tuple(lenient_json.decode(written, list[_Rule])) if written else ()
    except InvalidInput:
        return EnhancedRules(enabled, previous.rules)
    return EnhancedRules(enabled, rules)


def check_labels(rules: EnhancedRules, namespace: str, labels: Mapping[str, str]) -> list[Violation]:
    """Return a violation of the first rule whose required labels a pod lacks, as a list of one or no violation.

    If the label skip-enhanced-validation of the pod is "true", no rule is checked.
    """
    if not rules.enabled or labels.get(keys.SKIP_ENHANCED_VALIDATION) == "true":
        return []
    for rule in rules.rules:
        if namespace in rule.namespace_whitelist:
            continue
        missing = [key for key in rule.required_labels if key not in labels]
        if len(missing) == 1:
            message = f"required label '{missing[0]}' is missing"
        elif missing:
            message = f"required labels are missing: [{' '.join(missing)}]"
        else:
            continue
        return [Violation(rule="required-labels", field="metadata.labels", message=message)]
    return []
