"""Drain: a round triggers a look at all drains. The drain controller works without it, too.

Source:
    descheduler spec, 4, 11
"""

from typing import Final

from koordcore.protocol.component_config import WireModel

from koord_descheduler.domain.config.arguments import native_args
from koord_descheduler.domain.framework.plugin import LookAtDrains, PluginRun, Point
from koord_descheduler.domain.framework.registry import PluginKind

NAME: Final = "Drain"


class DrainArgs(WireModel): ...


class Drain:
    name = NAME

    def deschedule(self, run: PluginRun) -> None:
        run.propose(LookAtDrains())


KIND: Final = PluginKind(
    name=NAME,
    points=frozenset({Point.DESCHEDULE}),
    is_native=True,
    decode=lambda raw: native_args(raw, DrainArgs),
    check=lambda _: (),
    make=lambda _args, _shared: Drain(),
)
