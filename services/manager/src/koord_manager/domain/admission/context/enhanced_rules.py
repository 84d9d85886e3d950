"""Labels that pods must have, by the rules of the ConfigMap pod-enhanced-validator-config.

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
    """The rules about labels that pods must have; without the ConfigMap they are off."""

    enabled: bool = False
    rules: tuple[_Rule, ...] = ()


def read_rules(previous: EnhancedRules, data: Mapping[str, str] | None) -> EnhancedRules:
    """Return the rules of the ConfigMap's data.

    Without the ConfigMap the rules are off. If the text is not valid, the previous rules stay.
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
    """Return the first rule that a pod breaks, as a list of one or no violation.

    A pod with the label skip-enhanced-validation breaks no rule.
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
