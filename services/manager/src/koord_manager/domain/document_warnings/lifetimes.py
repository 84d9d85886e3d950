"""Find Reservations that end earlier than their author seems to expect.

Source:
    scheduler-fine-grained spec, 3.3 (a Reservation that states only `expires` has the default `ttl` of 24 hours)
"""

from collections.abc import Iterator
from typing import Final, cast

_BOTH: Final = "the earlier of both ends the Reservation; a later expires needs a longer ttl, and ttl 0s turns off both"


def lifetime_warnings(document: object) -> Iterator[str]:
    """Yield a sentence if a Reservation states `expires` and leaves `ttl` at its default."""
    if not isinstance(document, dict):
        return
    fields = cast("dict[str, object]", document)
    spec = fields.get("spec")
    if fields.get("kind") != "Reservation" or not isinstance(spec, dict):
        return
    written = cast("dict[str, object]", spec)
    if written.get("expires") is not None and written.get("ttl") is None:
        yield f"spec.ttl: is not set and therefore 24h, beside spec.expires {written['expires']!r}; {_BOTH}"
