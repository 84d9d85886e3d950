"""Which CPU quotas of containers the agent may change: those of their limits, and those that it wrote itself.

Any other quota belongs to another writer. Examples are the -1 that a kubelet gives to containers with exclusive CPUs,
and the quota of a limit that is being resized. Such a quota is neither lowered nor put back. Source: decision 0051.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from koord_agent.domain.kernel.cfs_bandwidth import UNLIMITED

MOST_REMEMBERED = 2_000
"""Number of remembered directories above which those of ended pods are forgotten."""


@dataclass(slots=True)
class OwnQuotas:
    """The quotas that one strategy has proposed, by directory, in microseconds per 100 ms.

    What a previous agent wrote is not known, so it is inferred once, in the first cycle.
    """

    _is_first: bool = True
    # The quota that the file had, and the newest one: the newest may have been refused.
    _known: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])

    def may_change(self, directory: str, present_us: int, of_limit_us: int, *, is_likely: bool) -> bool:
        """Return whether the strategy may change the quota that a directory has. An unlimited one stays.

        `is_likely`: whether the quota may be the work of a previous agent.
        """
        if present_us == UNLIMITED:
            return False
        if present_us == of_limit_us or present_us in self._known.get(directory, ()):
            return True
        return self._is_first and is_likely

    def remember(self, directory: str, present_us: int, proposed_us: int) -> None:
        self._known[directory] = present_us, proposed_us

    def end_cycle(self, exists: Callable[[str], bool]) -> None:
        """From now on nothing is inferred. If many directories are remembered, forget those that no longer exist."""
        self._is_first = False
        if len(self._known) > MOST_REMEMBERED:
            self._known = {directory: known for directory, known in self._known.items() if exists(directory)}
