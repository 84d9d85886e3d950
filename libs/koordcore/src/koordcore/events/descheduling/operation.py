"""Actions of users on the descheduler: changes of its configuration, and dry runs. Writer: the leading descheduler.

Aggregate: `descheduler.default`.

Source:
    descheduler spec, 12 (config_change, decision dry_run)
"""

from typing import Any

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


class ChangedField(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Old and new value of a changed field or annotation as JSON texts; "" if it is absent."""

    before: str = ""
    after: str = ""


@CATALOGUE.register(kind="descheduler")
class DeschedulerConfigured(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A descheduler began to lead with another configuration than the leader before it.

    Attributes:
        configuration_hash: Hash of the effective configuration, 16 hex digits.
        configuration: The effective configuration, as `/configz` shows it.
        source: File from which it was read; "" for the defaults.
        asked_by: User of the operating system that runs the process.
        changes: Path of a field -> its values, for each field that changed; empty for the first configuration.
    """

    configuration_hash: str
    configuration: dict[str, Any]
    source: str = ""
    asked_by: str = ""
    changes: dict[str, ChangedField] = {}


@CATALOGUE.register(kind="descheduler")
class DryRunAnswered(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A user has simulated rounds of the descheduler with a configuration. Nothing was changed.

    Attributes:
        asked_by: Name of the user or service that asked; "" if it gave none.
        configuration_hash: Hash of the configuration that was tried, 16 hex digits.
        rounds: Number of rounds.
        moves: Number of pods that would move.
        without_place: Number of pods that would find no place.
        without_gain: Number of pods whose move would not make the cluster better.
    """

    asked_by: str = ""
    configuration_hash: str
    rounds: int = 1
    moves: int = 0
    without_place: int = 0
    without_gain: int = 0
