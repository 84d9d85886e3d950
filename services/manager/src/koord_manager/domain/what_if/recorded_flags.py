"""Flags of the recorded manager that the log does not contain.

Source:
    manager spec, 2.2 to 2.4
"""

from dataclasses import dataclass

from koord_manager.domain.enabled import CONTROLLERS, PLUGINS


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFlags:
    """Flags of the manager that made the recording. The log does not contain them, so the user states them.

    Attributes:
        controllers: Controllers that ran, of `enabled.CONTROLLERS` (flag --controllers).
        plugins: Node resource plugins that ran, of `enabled.PLUGINS` (flag --noderesource-plugins).
        sync_shared_gpus: Whether the gate EnableSyncGPUSharedResource was on.
    """

    controllers: frozenset[str] = frozenset(CONTROLLERS)
    plugins: frozenset[str] = frozenset(PLUGINS)
    sync_shared_gpus: bool = False
