"""Settings of a configuration file that are accepted and have no effect, with the reason."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, cast

from koordcore.protocol.component_config.wire import WireModel


class Ignored(NamedTuple):
    """A setting of a configuration file that has no effect in this service.

    Attributes:
        path: Path of the setting.
        why: Why it has no effect.
    """

    path: str
    why: str


def fields_without_effect(written: WireModel, reasons: Mapping[str, str]) -> Iterator[Ignored]:
    """Yield those of the fields without effect that a document sets.

    Args:
        written: The document as it was read. Fields that it does not set are not reported.
        reasons: Path of a field without effect, such as `leaderElection.resourceLock` -> reason.
    """
    given = written.model_dump(by_alias=True, exclude_unset=True)
    for path, why in reasons.items():
        parent: object = given
        *steps, name = path.split(".")
        for step in steps:
            parent = cast("dict[str, object]", parent).get(step, {})
        if name in cast("dict[str, object]", parent):
            yield Ignored(path, why)
