"""Objects that a structural schema accepts, as a hypothesis strategy: every type, bound, enum and default it names."""

from typing import Any

from hypothesis import strategies as st
from koordcore.protocol.crd import ResourceVersion, Schema

QUANTITIES = st.sampled_from(["0", "1", "500m", "1.5", "2Gi", "100k", "1e3", ".5", "+1", "1E"])
NAMES = st.sampled_from(["cpu", "memory", "a", "koordinator.sh/gpu-core", "x.y/z"])
TIMES = st.sampled_from(["2026-01-01T00:00:00Z", "2026-11-21T08:30:00.123456+02:00"])
DURATIONS = st.sampled_from(["5m", "24h", "0s", "1m30s", "0"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
_BITS = {"int32": 32, "int64": 64}


def documents(resource: ResourceVersion) -> st.SearchStrategy[dict[str, Any]]:
    """Whole objects of a kind."""

    def completed(body: dict[str, Any]) -> dict[str, Any]:
        metadata = {"name": "x", **({"namespace": "default"} if resource.scope == "Namespaced" else {})}
        return {**body, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}

    top = {
        name: child
        for name, child in resource.schema.properties.items()
        if name not in ("apiVersion", "kind", "metadata")
    }
    return _object(top, resource.schema.required).map(completed)


def values(schema: Schema) -> st.SearchStrategy[Any]:
    """What one node of a schema accepts."""
    if schema.enum:
        return st.sampled_from(schema.enum)
    if schema.int_or_string:
        return QUANTITIES | st.integers(0, 100) if schema.pattern is not None else st.integers(0, 100) | st.just("50%")
    match schema.type:
        case "object":
            return _objects(schema)
        case "array":
            item = values(schema.items) if schema.items is not None else ANYTHING
            return st.lists(item, min_size=schema.min_items or 0, max_size=max(2, schema.min_items or 0))
        case "string":
            return _texts(schema)
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(*_bounds(schema))
        case "number":
            low, high = _bounds(schema)
            return st.integers(low, high) | st.floats(low, high, allow_nan=False, width=32)
        case _:
            return ANYTHING.filter(lambda value: value is not None)  # a null that is not allowed counts as absent


def _objects(schema: Schema) -> st.SearchStrategy[dict[str, Any]]:
    if schema.additional is not None:
        return st.dictionaries(NAMES, values(schema.additional), max_size=3)
    if not schema.properties:
        return st.dictionaries(st.text(max_size=3), ANYTHING, max_size=2) if schema.preserve_unknown else st.just({})
    found = _object(dict(schema.properties), schema.required)
    if schema.min_properties:
        fewest = schema.min_properties
        return found.filter(lambda value: len(value) >= fewest)
    return found


def _object(properties: dict[str, Schema], required: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    needed = {name: values(child) for name, child in properties.items() if name in required}
    others = {name: st.deferred(_later(child)) for name, child in properties.items() if name not in required}
    return st.fixed_dictionaries(needed, optional=others)


def _later(schema: Schema):  # type: ignore[no-untyped-def]  # a strategy that is made when it is drawn from
    return lambda: values(schema)


def _texts(schema: Schema) -> st.SearchStrategy[str]:
    if schema.format == "date-time":
        return TIMES
    if schema.pattern is not None:
        pattern = schema.pattern
        return (QUANTITIES | DURATIONS).filter(lambda text: pattern.search(text) is not None)
    shortest = schema.min_length or 0
    return (DURATIONS | st.text(min_size=shortest, max_size=shortest + 4)).filter(lambda text: len(text) >= shortest)


def _bounds(schema: Schema) -> tuple[int, int]:
    bits = _BITS.get(schema.format or "", 32)
    low = int(schema.minimum) if schema.minimum is not None else -(1 << (bits - 1))
    high = int(schema.maximum) if schema.maximum is not None else (1 << (bits - 1)) - 1
    return low, high
