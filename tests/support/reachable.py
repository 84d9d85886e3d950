"""Count the entries of all containers that can be reached from an object, by the path on which they are found."""

import functools
import re
import types
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta, tzinfo
from enum import Enum
from pathlib import Path
from typing import Any, cast

import numpy as np

_ATOMS = (
    str, bytes, int, float, bool, complex, type(None), Enum, type, datetime, timedelta, tzinfo, Path, re.Pattern,
    types.ModuleType, types.BuiltinFunctionType, np.generic, np.dtype,
)  # fmt: skip
_CONTAINERS = (Mapping, list, tuple, set, frozenset, deque)
_NAMED = 40
"""Largest number of entries of a dictionary whose keys are parts of the path. They are names of kinds or plug-ins."""


def container_sizes(root: object) -> Counter[str]:
    """Path of attributes -> number of entries of the containers there. `[]` stands for any entry of a container."""
    sizes: Counter[str] = Counter()
    seen: dict[int, object] = {}  # with the objects, so that no id is used twice
    waiting: deque[tuple[Any, str]] = deque([(root, "")])
    while waiting:
        found, path = waiting.popleft()
        if isinstance(found, _ATOMS) or id(found) in seen:
            continue
        seen[id(found)] = found
        if isinstance(found, np.ndarray):
            sizes[path] += found.size
            continue
        if isinstance(found, _CONTAINERS):
            sizes[path] += len(cast("Collection[Any]", found))
        waiting.extend(_entries(found, path))
        waiting.extend((value, f"{path}.{name}") for name, value in _attributes(found))
    return sizes


def _entries(found: Any, path: str) -> Iterator[tuple[Any, str]]:
    """Yield what an object contains besides its attributes: entries, and the arguments of functions."""
    if isinstance(found, Mapping):
        entries = cast("Mapping[Any, Any]", found)
        named = len(entries) <= _NAMED and all(isinstance(key, str) for key in entries)
        yield from ((value, f"{path}[{key}]" if named else f"{path}[]") for key, value in entries.items())
    elif isinstance(found, _CONTAINERS):
        yield from ((each, f"{path}[]") for each in cast("Iterable[Any]", found))
    elif isinstance(found, types.MethodType):
        yield found.__self__, path
    elif isinstance(found, types.FunctionType):
        yield from ((cell.cell_contents, f"{path}()") for cell in found.__closure__ or ())
    elif isinstance(found, functools.partial):
        call = cast("functools.partial[Any]", found)
        yield from ((each, f"{path}()") for each in (call.func, *call.args, *call.keywords.values()))


def _attributes(found: Any) -> Iterator[tuple[str, Any]]:
    names = [*getattr(found, "__dict__", ()), *getattr(found, "__struct_fields__", ())]
    for each in type(found).__mro__:
        slots = each.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    for name in dict.fromkeys(names):
        if name not in ("__dict__", "__weakref__") and hasattr(found, name):
            yield name, getattr(found, name)
