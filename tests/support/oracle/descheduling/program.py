"""The Kubernetes descheduler's own code as a judge: the program of tests/kubernetes/tools/descheduler.

A case is a cluster, a plugin with its arguments, and those of the evictor (`Case` in main.go has the fields).
"""

import msgspec
from support.oracle.lines import PROGRAMS, LineProgram


class Answer(msgspec.Struct):
    """What the descheduler makes of a case. Pods are uids."""

    error: str = ""
    invalid: str = ""  # Why it refuses the arguments; all else is empty then
    evictable: list[str] = []  # Pods that the evictor's filter accepts
    fitting: list[str] = []  # Pods that pass its filter just before an eviction
    # The different sets of evicted pods. It iterates maps in any order, so there can be several.
    outcomes: list[list[str]] = []


class Descheduler(LineProgram[Answer]):
    """A running program."""

    path = PROGRAMS / "descheduler"
    answer = Answer
