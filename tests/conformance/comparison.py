"""The judge of the vectors: Appendix A of the specifications, "rules for all kinds".

Only what `expect` names is compared. Resource lists agree by value with absent = zero; null agrees with every empty
value; texts agree as durations by length or as quantities by value unless the kind pins their spelling; numbers
numerically.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import cast

from conformance.registry import Json, Rules
from koordcore.values.duration import parse_duration
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import ZERO, parse_quantity, quantity_from_json


def differences_of_case(expect: Json, actual: Json, rules: Rules) -> list[str]:
    """What is wrong with the answer to one case; a refusal (`error` and nothing else said) agrees only with
    `{"error": true}`, or with the text that `expect` names.
    """
    failed = bool(actual.get("error"))
    names_text = isinstance(expect, Mapping) and isinstance(cast("Mapping[str, Json]", expect).get("error"), str)
    if expect == {"error": True} or (failed and not names_text and actual.keys() <= {"error", "refused"}):
        return [] if failed and expect == {"error": True} else [f"expected {expect!r}, got {actual!r}"]
    return list(differences(expect, actual, rules))


def differences(expect: Json, actual: Json, rules: Rules, path: str = "", key: str = "") -> Iterator[str]:
    """Every point in which `actual` is not what `expect` asks for, as one line each; nothing when they agree."""
    if key in rules.resource_lists and _is_resource_list(expect) and _is_resource_list(actual):
        yield from _resource_differences(expect or {}, actual or {}, path)
    elif expect is None:
        if not _is_empty(actual):
            yield f"{path}: expected nothing, got {actual!r}"
    elif isinstance(expect, dict):
        yield from _object_differences(cast("dict[str, Json]", expect), actual, rules, path, key)
    elif isinstance(expect, list):
        yield from _list_differences(cast("list[Json]", expect), actual, rules, path, key)
    elif not _same_scalar(expect, actual, exact=key in rules.exact_text):
        yield f"{path}: expected {expect!r}, got {actual!r}"


def _object_differences(expect: dict[str, Json], actual: Json, rules: Rules, path: str, key: str) -> Iterator[str]:
    if actual is None:
        actual = {}
    if not isinstance(actual, Mapping):
        yield f"{path}: expected an object, got {actual!r}"
        return
    got = cast("Mapping[str, Json]", actual)
    for name, wanted in expect.items():
        yield from differences(wanted, got.get(name), rules, f"{path}.{name}" if path else name, name)
    # an object that is expected to be empty says so on purpose
    if key in rules.whole or (path and not expect):
        for name in got.keys() - expect.keys():
            if not _is_empty(got[name]):
                yield f"{path}.{name}: not expected, got {got[name]!r}"


def _list_differences(expect: list[Json], actual: Json, rules: Rules, path: str, key: str) -> Iterator[str]:
    if key in rules.mentions:
        yield from (f"{path}: {part!r} is not mentioned in {actual!r}" for part in expect if part not in str(actual))
        return
    if actual is None:
        actual = []
    if not isinstance(actual, list | tuple):
        yield f"{path}: expected a list, got {actual!r}"
        return
    got = list(cast("list[Json]", actual))
    if key in rules.sublists:
        yield from _sublist_differences(expect, got, rules, path, key)
        return
    if len(got) != len(expect):
        yield f"{path}: expected {len(expect)} items {expect!r}, got {len(got)}: {got!r}"
        return
    if key in rules.sets:
        expect, got = sorted(expect, key=repr), sorted(got, key=repr)
    for index, (wanted, found) in enumerate(zip(expect, got, strict=True)):
        yield from differences(wanted, found, rules, f"{path}[{index}]", key)


def _sublist_differences(expect: list[Json], got: list[Json], rules: Rules, path: str, key: str) -> Iterator[str]:
    position = 0
    for index, wanted in enumerate(expect):
        while position < len(got) and next(differences(wanted, got[position], rules, path, key), None) is not None:
            position += 1
        if position == len(got):
            yield f"{path}: expected item {index} {wanted!r} (after the items before it) in {got!r}"
            return
        position += 1


def _resource_differences(expect: Mapping[str, Json], actual: Mapping[str, Json], path: str) -> Iterator[str]:
    for name in sorted(expect.keys() | actual.keys()):
        wanted = quantity_from_json(expect[name]) if name in expect else ZERO
        found = quantity_from_json(actual[name]) if name in actual else ZERO
        if wanted != found:
            yield f"{path}.{name}: expected {wanted}, got {found}"


def _is_resource_list(value: Json) -> bool:
    return value is None or isinstance(value, dict)


def _is_empty(value: Json) -> bool:
    return value is None or (isinstance(value, str | list | tuple | dict) and len(cast("str", value)) == 0)


def _same_scalar(expect: Json, actual: Json, *, exact: bool) -> bool:
    if isinstance(expect, bool) or isinstance(actual, bool):
        return expect is actual
    if isinstance(expect, str):
        if actual is None:
            return expect == ""
        return isinstance(actual, str) and (expect == actual or (not exact and _same_amount(expect, actual)))
    if isinstance(expect, int | float):
        if isinstance(expect, int) and isinstance(actual, int):
            return expect == actual
        return isinstance(actual, int | float) and math.isclose(expect, actual, rel_tol=1e-9, abs_tol=1e-12)
    return False


def _same_amount(expect: str, actual: str) -> bool:
    for parse in (parse_quantity, parse_duration):
        try:
            if parse(expect) == parse(actual):
                return True
        except InvalidInput:
            continue
    return False
