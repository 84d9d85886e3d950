"""The hash of an effective configuration, and the fields in which two configurations differ.

Source:
    descheduler spec, 12 (actor: configuration hash; action config_change)
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from koordcore.events.descheduling import ChangedField
from koordcore.values import codec

from koord_descheduler.domain.config.document import DeschedulerConfiguration

_DIGITS: Final = 16
_MOST_CHANGES: Final = 100
_LONGEST: Final = 256


def configuration_hash(configuration: DeschedulerConfiguration) -> str:
    """Return the hash of an effective configuration, 16 hex digits. Equal configurations have equal hashes."""
    return hashlib.sha256(codec.encode_canonical(configuration.as_json())).hexdigest()[:_DIGITS]


def changed_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, ChangedField]:
    """Return path -> values of the fields that differ between two configurations, the first 100 by path.

    The values are JSON texts, cut after 256 characters. "" means that one configuration does not have the field.

    Args:
        before: The effective configuration before, as JSON.
        after: The effective configuration after.
    """
    old, new = dict(_fields(before, "")), dict(_fields(after, ""))
    changed = [path for path in sorted(old.keys() | new.keys()) if old.get(path) != new.get(path)]
    return {
        path: ChangedField(before=old.get(path, "")[:_LONGEST], after=new.get(path, "")[:_LONGEST])
        for path in changed[:_MOST_CHANGES]
    }


def _fields(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Yield path and JSON text of every value that is neither an object nor a list."""
    if isinstance(value, Mapping):
        for name, each in cast("Mapping[str, object]", value).items():
            yield from _fields(each, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for index, each in enumerate(cast("list[object]", value)):
            yield from _fields(each, f"{path}[{index}]")
    else:
        yield path, codec.encode(value).decode()
