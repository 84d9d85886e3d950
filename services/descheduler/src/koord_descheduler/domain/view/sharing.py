"""Share equal parts of pods: most pods of a workload have the same labels, containers, owners and tolerations.

A decoded pod has its own copy of every part, and an own empty list or dictionary for every field without a value. In a
cluster of 150,000 pods, these copies take more memory than everything else.
"""

from typing import Any, Final

import msgspec
from koordcore.protocol.objects import Pod
from koordcore.values import codec

MOST_PARTS: Final = 50_000
"""Number of different parts above which all of them are forgotten, so that parts of pods long gone are freed."""
LONGEST: Final = 4096
"""Bytes above which a part is not compared. Such a part is rarely equal to another one."""
_OWN: Final = frozenset({"name", "uid"})
"""Fields whose text differs from pod to pod."""


class SharedParts:
    """Parts of pods that were seen, so that equal ones of later pods can be replaced by them."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._parts: dict[tuple[type, str, bytes], Any] = {}

    def share(self, pod: Pod) -> None:
        """Replace the parts of a pod by equal ones of earlier pods. The pod stays equal to what it was.

        Nobody may change lists or dictionaries of a folded object, so it does not matter that pods share them.
        """
        for struct in (pod.metadata, pod.spec, pod.status):
            self._share_fields(struct)
        if len(self._parts) > MOST_PARTS or len(self._texts) > MOST_PARTS:
            self._texts.clear()
            self._parts.clear()

    def _share_fields(self, struct: msgspec.Struct) -> None:
        kind = type(struct)
        for name in struct.__struct_fields__:
            value = getattr(struct, name)
            if type(value) is str:
                shared = value if name in _OWN else self._texts.setdefault(value, value)
            elif isinstance(value, list | dict):
                shared = self._shared(kind, name, value)
            else:
                continue
            if shared is not value:
                msgspec.structs.force_setattr(struct, name, shared)

    def _shared(self, kind: type, name: str, value: Any) -> Any:
        key = codec.encode(value)
        return self._parts.setdefault((kind, name, key), value) if len(key) <= LONGEST else value
