"""Flags of the recorded manager that the log does not contain.

Source:
    manager spec, 2.2 to 2.4
"""

from dataclasses import dataclass

from koord_manager.domain.enabled import CONTROLLERS, PLUGINS


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFlags:
    """The controllers and plugins that ran, and one gate.

    Attributes:
        controllers: Names of `--controllers` (`enabled.CONTROLLERS`).
        plugins: Names of `--noderesource-plugins` (`enabled.PLUGINS`).
        sync_shared_gpus: Gate EnableSyncGPUSharedResource.
    """

    controllers: frozenset[str] = frozenset(CONTROLLERS)
    plugins: frozenset[str] = frozenset(PLUGINS)
    sync_shared_gpus: bool = False
