"""The type of one extension point: a row of the table in `extension_points`."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from koord_scheduler.domain.framework.points import Point

P = TypeVar("P")

_OF_EVERY_PLUGIN: Final = frozenset({"name", "extension_points"})


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ExtensionPoint(Generic[P]):
    """One step at which the scheduler calls plugins, such as Filter: its protocol, and how a configuration enables it.

    Attributes:
        name: Name in documentation and error texts.
        protocol: The methods and attributes that a plugin with this extension point must have.
        enabled_at: The plugin list of a profile, such as `preFilter`, that must name the plugin. None: the plugin is
            called at this point whenever any list of the profile names it.
        is_single: Whether only the first plugin of a profile is called.
        timed: Method -> value of the metrics' label `extension_point`. Durations of other methods are not measured.
        asked: When the scheduler calls the plugin, for the table in the documentation.
        answers: What the plugin may return, for the table in the documentation.
    """

    name: str
    protocol: type[P]
    enabled_at: Point | None = None
    is_single: bool = False
    timed: Mapping[str, str] = field(default_factory=dict[str, str])
    asked: str
    answers: str

    @property
    def members(self) -> tuple[str, ...]:
        """Return the sorted names of the members of `protocol`, without `name` and `extension_points`."""
        found: set[str] = set()
        for kind in self.protocol.__mro__:
            if kind.__dict__.get("_is_protocol"):
                found |= {*inspect.get_annotations(kind), *kind.__dict__}
        return tuple(sorted(name for name in found - _OF_EVERY_PLUGIN if not name.startswith("_")))

    def __repr__(self) -> str:
        return self.name
