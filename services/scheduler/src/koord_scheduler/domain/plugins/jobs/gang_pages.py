"""HTTP pages of Coscheduling.

Source: scheduler-core spec, 14.
"""

from collections.abc import Mapping

import msgspec

from koord_scheduler.domain.framework.lifecycle_hooks import NotFound, PageAnswer
from koord_scheduler.domain.gang.cache import GangCache
from koord_scheduler.domain.gang.summary import gang_line, gang_view, gang_views


def gang_pages(gangs: GangCache) -> Mapping[str, PageAnswer]:
    """Return the HTTP pages about gangs: path below `/apis/v1/plugins/Coscheduling/` -> function that answers."""

    def gang(asked: Mapping[str, str]) -> object:
        gang_id = f"{asked['namespace']}/{asked['name']}"
        found = gang_view(gangs, gang_id)
        if found is None:
            raise NotFound(f"cannot find gang {gang_id}")
        return found

    def lines(_: Mapping[str, str]) -> object:
        found = (gang_line(gangs, gang_id) for gang_id in sorted(gangs.roster.gangs))
        return [msgspec.to_builtins(line) for line in found if line is not None]

    return {"gang/{namespace}/{name}": gang, "gangs": lambda _: gang_views(gangs), "lines": lines}
