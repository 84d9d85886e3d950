"""Index colocation profiles by a label that their pod selector requires.

Most profiles require a value of some label. A pod is compared only with the profiles that require one of its labels,
and with those that require none.

Source:
    manager spec, 8.2 (1)
"""

from collections.abc import Mapping

from koordcore.protocol.selectors import Operator, Requirement

from koord_manager.domain.admission.context.profiles import ColocationProfile, Match


class ProfileIndex:
    """Colocation profiles, indexed by a label that their pod selector requires.

    Args:
        profiles: Name of a profile -> profile.
    """

    def __init__(self, profiles: Mapping[str, ColocationProfile]) -> None:
        self.all: tuple[ColocationProfile, ...] = tuple(profiles[name] for name in sorted(profiles))
        """In order of name."""
        self._by_label: dict[tuple[str, str], list[int]] = {}
        self._by_none: list[int] = []
        for place, profile in enumerate(self.all):
            asked = _value_asked_for(profile.pods)
            if asked is None:
                self._by_none.append(place)
                continue
            for value in asked.values:
                self._by_label.setdefault((asked.key, value), []).append(place)

    def candidates(self, labels: Mapping[str, str]) -> list[ColocationProfile]:
        """Return the profiles whose pod selector may match these labels, in order of name.

        No other profile can match.
        """
        places = list(self._by_none)
        for label in labels.items():
            places += self._by_label.get(label, ())
        return [self.all[place] for place in sorted(places)]


def _value_asked_for(pods: Match) -> Requirement | None:
    requirements = pods.selector.requirements if pods.selector is not None else ()
    return next((asked for asked in requirements if asked.operator is Operator.IN), None)
