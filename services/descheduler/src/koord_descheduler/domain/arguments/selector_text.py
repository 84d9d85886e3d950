"""Label selectors as one line of text: `a=b,c in (d,e),f,!g`. Evictors select nodes with them.

Source:
    descheduler spec, 1.7
"""

import re
from typing import Final

from koordcore.protocol.objects import LabelSelector, LabelSelectorRequirement
from koordcore.protocol.selectors import Selector, compile_selector
from koordcore.values.invalid import InvalidInput

_TERM: Final = re.compile(
    r"\s*(?:"
    r"!\s*(?P<absent>[^\s=!,()<>]+)"
    r"|(?P<key>[^\s=!,()<>]+)\s*(?:(?P<equal>==?|!=)\s*(?P<value>[^\s=!,()<>]*)"
    r"|(?P<set>\bin|\bnotin)\s*\((?P<values>[^()]*)\))?"
    r")\s*(?:,|$)"
)
_RULE: Final = "a label selector such as a=b,c!=d,e in (f,g),h,!i"


def parse_selector_text(text: str) -> Selector:
    """Return the selector that a text describes. An empty text matches everything.

    Raises:
        InvalidInput: The text has another form, or a key or value is not valid in labels.
    """
    requirements: list[LabelSelectorRequirement] = []
    position = 0
    while text.strip() and position < len(text):
        match = _TERM.match(text, position)
        if match is None:
            raise InvalidInput(_RULE, text)
        requirements.append(_requirement(match))
        position = match.end()
    if text.rstrip().endswith(","):
        raise InvalidInput(_RULE, text)
    try:
        return compile_selector(LabelSelector(match_expressions=requirements))
    except InvalidInput as error:
        raise InvalidInput(f"{_RULE} ({error.rule})", error.value) from error


def _requirement(match: re.Match[str]) -> LabelSelectorRequirement:
    if match["absent"]:
        return LabelSelectorRequirement(key=match["absent"], operator="DoesNotExist")
    if match["equal"]:
        return LabelSelectorRequirement(
            key=match["key"], operator="NotIn" if match["equal"] == "!=" else "In", values=[match["value"]]
        )
    if match["set"]:
        values = [each.strip() for each in match["values"].split(",")]
        return LabelSelectorRequirement(
            key=match["key"], operator="In" if match["set"] == "in" else "NotIn", values=values
        )
    return LabelSelectorRequirement(key=match["key"], operator="Exists")
