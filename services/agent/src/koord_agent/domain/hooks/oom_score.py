"""oom_score_adj of containers by the annotations of their pod.

Source: runtime spec, 3.9. Vectors: oom_score_adj.
"""

import re
from collections.abc import Mapping
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.lenient_json import decode
from koordcore.values.invalid import InvalidInput

LOWEST: Final = -1000
HIGHEST: Final = 1000
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,9}")


def oom_score_adj(annotations: Mapping[str, str], container: str, *, is_sandbox: bool = False) -> int | None:
    """Return oom_score_adj of a container, -1000..1000, from an annotation of its pod.

    None if it must not be changed: it is a sandbox, it is not configured, or the annotation or value is invalid.
    """
    if is_sandbox:
        return None
    try:
        spec = annotations.get(keys.OOM_SCORE_ADJ_SPEC)
        by_name = decode(spec, dict[str, int]) if spec else {}
    except InvalidInput:
        return None
    value = by_name.get(container)
    if value is None:
        text = annotations.get(keys.OOM_SCORE_ADJ, "")
        if not _WHOLE.fullmatch(text):
            return None
        value = int(text)
    return value if LOWEST <= value <= HIGHEST else None
