"""Share equal parts of pods: most pods of a workload have the same labels, containers, owners and tolerations.

A decoded pod has its own copy of every part, and an own empty list or dictionary for every field without a value. In a
cluster of 150,000 pods, these copies take more memory than everything else.
"""

from typing import Any, Final, cast

import msgspec
from koordcore.protocol.objects import Pod
from koordcore.values import codec
from koordcore.values.resources import Amounts

MOST_PARTS: Final = 50_000
"""Number of different parts above which all of them are forgotten, so that parts of pods long gone are freed."""
LONGEST: Final = 4096
"""Bytes above which a part is not compared. Such a part is rarely equal to another one."""
_OWN: Final = frozenset({"name", "uid"})
"""Fields whose text differs from pod to pod."""
_NO_ITEMS: Final[list[Any]] = []
_NO_KEYS: Final[dict[str, Any]] = {}


class SharedParts:
    """Cache of parts of pods (metadata, spec, status fields), so that pods with equal parts share one object."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._parts: dict[tuple[str, bytes], Any] = {}

    def share(self, pod: Pod) -> None:
        """Replace parts of a pod by equal objects of earlier pods, to save memory.

        The value of the pod does not change.

        This is safe, because lists and dictionaries of a folded object are never changed.
        """
        for struct in (pod.metadata, pod.spec, pod.status):
            for name in struct.__struct_fields__:
                value = getattr(struct, name)
                shared = self._shared(name, value)
                if shared is not value:
                    msgspec.structs.force_setattr(struct, name, shared)
        if len(self._parts) > MOST_PARTS or len(self._texts) > MOST_PARTS:
            self._texts.clear()
            self._parts.clear()

    def amounts(self, amounts: Amounts) -> Amounts:
        """Return an equal object of amounts that was seen before, or else `amounts` itself."""
        return self._shared("", amounts)

    def _shared(self, name: str, value: Any) -> Any:
        kind = cast("object", type(value))
        if kind is str:
            return value if name in _OWN else self._texts.setdefault(value, value)
        if kind is not list and kind is not dict:
            return value
        if not value:
            return _NO_ITEMS if kind is list else _NO_KEYS
        key = codec.encode(value)
        return self._parts.setdefault((name, key), value) if len(key) <= LONGEST else value
