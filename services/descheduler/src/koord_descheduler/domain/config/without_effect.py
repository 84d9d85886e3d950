"""Settings of a DeschedulerConfiguration that are accepted without effect."""

from collections.abc import Iterator
from typing import Final

from koordcore.protocol.component_config import Ignored, fields_without_effect

from koord_descheduler.domain.config.document import DeschedulerConfiguration
from koord_descheduler.domain.framework.plugin import Point

_LOCK: Final = "the lease is a key of the log"
NOT_ACTED_ON: Final = {
    "leaderElection.resourceLock": _LOCK,
    "leaderElection.resourceName": _LOCK,
    "leaderElection.resourceNamespace": _LOCK,
    "clientConnection": "the descheduler uses the log, not an API server",
    "enableContentionProfiling": "a profile of the process shows waiting, too",
}
"""Fields of the document that are accepted without effect, with the reason."""
IDLE_ARGUMENTS: Final = {("MigrationController", "maxConcurrentReconciles"): "one task does this work"}
"""Arguments that are accepted without effect: (plugin, field) -> reason."""
OFF_LIMITER: Final = "a limit per namespace needs a number in maxMigrating"
"""Why an object limiter is off whose `maxMigrating` is a percentage or not given."""


def settings_without_effect(
    written: DeschedulerConfiguration, effective: DeschedulerConfiguration
) -> Iterator[Ignored]:
    """Yield the settings of a document that have no effect.

    Args:
        written: The document as it was decoded.
        effective: The same with all defaults.
    """
    yield from fields_without_effect(written, NOT_ACTED_ON)
    for index, (profile, filled) in enumerate(zip(written.profiles, effective.profiles, strict=False)):
        enabled = {each.name for point in Point for each in filled.plugins.at(point).enabled}
        for entry in profile.plugin_config:
            path = f"profiles[{index}].pluginConfig[{entry.name}]"
            if entry.name not in enabled:
                yield Ignored(path, "the profile does not enable the plugin")
                continue
            for field in entry.args or {}:
                if (why := IDLE_ARGUMENTS.get((entry.name, field))) is not None:
                    yield Ignored(f"{path}.args.{field}", why)
            match entry.args:
                case {"objectLimiters": {"namespace": {"maxMigrating": int()}}}:
                    pass
                case {"objectLimiters": {"namespace": _}}:
                    yield Ignored(f"{path}.args.objectLimiters.namespace", OFF_LIMITER)
                case _:
                    pass
