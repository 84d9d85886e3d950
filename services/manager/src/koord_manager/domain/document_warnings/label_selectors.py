"""Find label selectors of custom resources that are accepted and match nothing.

The schemas of custom resources do not restrict operators and values, as those of Kubernetes' own kinds do.

Source:
    protocol spec, 1.3, 8; manager spec, 1 (an invalid selector never matches), 14
"""

from collections.abc import Iterator, Mapping
from typing import Final, cast

from koordcore.protocol.objects import LabelSelector, object_from_json
from koordcore.protocol.selectors import compile_selector
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

_SELECTORS: Final[Mapping[str, Mapping[str, str]]] = {
    "ClusterColocationProfile": {
        "selector": "the profile matches no pod",
        "namespaceSelector": "the profile matches no pod",
    },
    "ElasticQuotaProfile": {"nodeSelector": "no quota is made of the profile"},
}
"""Kind -> field of `spec` -> effect of a selector that cannot be read."""


def unreadable_selectors(document: object) -> Iterator[str]:
    """Yield a sentence for each selector that matches nothing, with field, rule, value and effect.

    The schema denies a selector with fields of the wrong type, so these are not reported here.
    """
    if not isinstance(document, dict):
        return
    entries = cast("dict[str, object]", document)
    kind, spec = entries.get("kind"), entries.get("spec")
    if not isinstance(kind, str) or not isinstance(spec, dict):
        return
    for field, effect in _SELECTORS.get(kind, {}).items():
        written = cast("dict[str, object]", spec).get(field)
        if written is None:
            continue
        try:
            compile_selector(object_from_json(written, LabelSelector))
        except codec.DecodeError:
            continue
        except InvalidInput as error:
            fault = error.at(f"spec.{field}")
            yield f"{fault.path}: should be {fault.rule}, got {fault.value!r}; {effect}"
