"""CPU lists of a directory and of those below it, which are read in each cycle for best effort."""

from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import NamedTuple

from koord_agent.shell.host.kept_files import KeptByKey, KeptFile


class _Tree(NamedTuple):
    """A directory with two levels below it, and how many links the upper two levels have while nothing was added."""

    directories: tuple[str, ...]
    links: Mapping[str, int]


class CpuLists:
    """Directories are listed anew if one was added or removed.

    Args:
        path: Returns where the CPU list of a directory is.
        children: Returns the names of the directories in a directory.
        links: Returns the number of links of a directory; 0 if it is not there.
        monotonic_ns: Returns a monotonic time in nanoseconds.
    """

    def __init__(
        self,
        path: Callable[[str], str],
        children: Callable[[str], list[str]],
        links: Callable[[str], int],
        monotonic_ns: Callable[[], int],
    ) -> None:
        self._children, self._links = children, links
        self._files = KeptByKey[str, KeptFile[str]](lambda directory: KeptFile(path(directory), str), monotonic_ns)
        self._trees: dict[str, _Tree] = {}
        self._reading = Lock()  # extensions read in threads of their own

    def read(self, directory: str) -> str | None:
        with self._reading:
            return self._files.get(directory).read()

    def below(self, directory: str) -> dict[str, str]:
        """By directory, parents first, down to two levels. Unreadable ones are left out."""
        with self._reading:
            known = self._trees.get(directory)
            if known is not None and all(self._links(one) == links for one, links in known.links.items()):
                texts = self._texts(known.directories)
                if len(texts) == len(known.directories):  # one that was removed may have been replaced
                    return texts
            names = self._children(directory)
            lowest = {child: self._children(child) for child in (f"{directory}/{name}" for name in names)}
            # a directory has a link for itself, one for its name, and one for each directory in it
            links = {directory: len(names) + 2, **{child: len(below) + 2 for child, below in lowest.items()}}
            deepest = (f"{child}/{name}" for child, below in lowest.items() for name in below)
            self._trees[directory] = _Tree((directory, *lowest, *deepest), links)
            return self._texts(self._trees[directory].directories)

    def _texts(self, directories: Iterable[str]) -> dict[str, str]:
        texts = ((directory, self._files.get(directory).read()) for directory in directories)
        return {directory: text for directory, text in texts if text is not None}
