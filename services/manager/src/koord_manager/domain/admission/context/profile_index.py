"""All colocation profiles, found by a label of the pod.

Most profiles ask for a value of some label. A pod is then compared with those that ask for a value that it has, and
with those that ask for none, rather than with all.

source    manager spec, 8.2 (1)
"""

from collections.abc import Mapping

from koordcore.protocol.selectors import Operator, Requirement

from koord_manager.domain.admission.context.profiles import ColocationProfile, Match


class ProfileIndex:
    """Profiles, and where to look for those of a pod.

    profiles    by the name of their objects
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
        """The profiles whose pod selector may match labels, in order of name: every other one matches them not."""
        places = list(self._by_none)
        for label in labels.items():
            places += self._by_label.get(label, ())
        return [self.all[place] for place in sorted(places)]


def _value_asked_for(pods: Match) -> Requirement | None:
    requirements = pods.selector.requirements if pods.selector is not None else ()
    return next((asked for asked in requirements if asked.operator is Operator.IN), None)
