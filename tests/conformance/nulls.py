"""Vectors say null for what the product refuses with an error."""

from collections.abc import Callable

from conformance.registry import Json


def none_if(*errors: type[Exception]) -> Callable[[Callable[[], Json]], Json]:
    """Call a function; the named errors are the vectors' null."""

    def run(compute: Callable[[], Json]) -> Json:
        try:
            return compute()
        except errors:
            return None

    return run
