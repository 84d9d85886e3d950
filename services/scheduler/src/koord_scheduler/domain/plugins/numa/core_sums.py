"""How many CPUs whole cores have together on a node whose cores differ: a sibling is offline, or some cores have two
threads and others one. A set of sums is an integer: bit n is set if some of the cores have n CPUs together.

Source: reality 3.8 (kubernetes#124066).
"""

from collections.abc import Iterable, Sequence


def sums_of(sizes: Iterable[int]) -> int:
    """Return the sums of CPUs that some of the cores have together. `sizes`: the CPUs of each core."""
    sums = 1
    for size in sizes:
        sums |= sums << size
    return sums


def chosen_with(sizes: Sequence[int], count: int) -> list[int] | None:
    """Return the places of cores that have exactly `count` CPUs together, the first ones if possible; None if no cores
    have. `sizes`: the CPUs of each core.
    """
    later = [1]
    for size in reversed(sizes):
        later.append(later[-1] | later[-1] << size)
    if not later.pop() >> count & 1:
        return None
    chosen: list[int] = []
    for place, size in enumerate(sizes):
        rest = later.pop()
        if size <= count and rest >> count - size & 1:
            chosen.append(place)
            count -= size
    return chosen


def shares_of(zones: Sequence[int], count: int) -> list[int] | None:
    """Return how many of `count` CPUs each zone gives in whole cores: as near to equal parts of what is left as its
    cores permit, rather fewer than more. None if the zones cannot give exactly as many. `zones`: the sums of each zone.
    """
    later = [1]
    for sums in reversed(zones):
        later.append(_joined(later[-1], sums))
    if not later.pop() >> count & 1:
        return None
    shares: list[int] = []
    for place, sums in enumerate(zones):
        rest, part = later.pop(), count // (len(zones) - place)
        possible = [number for number in _numbers(sums) if number <= count and rest >> count - number & 1]
        share = max((number for number in possible if number <= part), default=possible[0])
        shares.append(share)
        count -= share
    return shares


def _joined(one: int, other: int) -> int:
    found = 0
    for number in _numbers(other):
        found |= one << number
    return found


def _numbers(sums: int) -> list[int]:
    return [number for number in range(sums.bit_length()) if sums >> number & 1]
