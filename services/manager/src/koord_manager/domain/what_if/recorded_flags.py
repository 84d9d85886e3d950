"""What the recorded manager was told by its flags, of which the log does not tell.

source    manager spec, 2.2 to 2.4
"""

from dataclasses import dataclass

from koord_manager.domain.enabled import CONTROLLERS, PLUGINS


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFlags:
    """Names of controllers and plugins that ran, and a gate.

    controllers        of `--controllers` (`enabled.CONTROLLERS`)
    plugins            of `--noderesource-plugins` (`enabled.PLUGINS`)
    sync_shared_gpus   gate EnableSyncGPUSharedResource
    """

    controllers: frozenset[str] = frozenset(CONTROLLERS)
    plugins: frozenset[str] = frozenset(PLUGINS)
    sync_shared_gpus: bool = False
