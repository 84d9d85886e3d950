"""Find the selectors of a long list that match some labels, without asking each of them.

A configuration may have one selector per node. Each selector is filed under one of its requirements: a label value that
few other selectors require, else a key that must exist. Only selectors without such a requirement are always asked.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge

from koordcore.protocol.selectors import Operator, Selector


class SelectorIndex:
    """The selectors of a list by what they require. `selectors`: None matches nothing."""

    def __init__(self, selectors: Sequence[Selector | None]) -> None:
        self._selectors = selectors
        self._by_value: dict[tuple[str, str], list[int]] = {}
        self._by_key: dict[str, list[int]] = {}
        self._always: list[int] = []
        self.asked = 0  # Number of selectors that were asked so far
        uses = Counter(
            (each.key, value)
            for selector in selectors
            for each in (selector.requirements if selector is not None else ())
            if each.operator is Operator.IN
            for value in each.values
        )
        for number, selector in enumerate(selectors):
            if selector is not None:
                self._file(number, selector, uses)

    def _file(self, number: int, selector: Selector, uses: Mapping[tuple[str, str], int]) -> None:
        required = [each for each in selector.requirements if each.operator is Operator.IN]
        existing = [each for each in selector.requirements if each.operator is Operator.EXISTS]
        if required:
            rarest = min(required, key=lambda each: sum(uses[each.key, value] for value in each.values))
            for value in rarest.values:
                self._by_value.setdefault((rarest.key, value), []).append(number)
        elif existing:
            self._by_key.setdefault(existing[0].key, []).append(number)
        else:
            self._always.append(number)

    def matching(self, labels: Mapping[str, str]) -> Iterator[int]:
        """Yield the positions of the selectors that match these labels, in order."""
        filed = [self._always]
        for item in labels.items():
            filed.append(self._by_value.get(item, []))
            filed.append(self._by_key.get(item[0], []))
        for number in merge(*filed):
            self.asked += 1
            selector = self._selectors[number]
            if selector is not None and selector.matches(labels):
                yield number
