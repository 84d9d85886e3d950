"""Kubernetes' own code as a judge: the program of tests/kubernetes/tools/oracle, asked case by case.

A case is a cluster and pods to try (`Case` in main.go has the fields). The answer has, for each pod, what an API server
stores or why it refuses it, and for each node which default plugins of kube-scheduler refuse the pod, and the scores.
"""

import msgspec
from support.oracle.lines import PROGRAMS, Document, LineProgram

PROGRAM = PROGRAMS / "oracle"


class FieldError(msgspec.Struct):
    """Why the API server refuses a pod."""

    type: str
    field: str
    detail: str


class Score(msgspec.Struct):
    """The score of a plugin before and after its normalization to 0..100."""

    raw: int
    normalized: int


class Refusal(msgspec.Struct):
    """Why a plugin refuses a node. `never`: no eviction can help."""

    reasons: list[str]
    never: bool = False


class Stored(msgspec.Struct):
    """A pod as an API server stores it, or its errors."""

    pod: Document | None = None
    errors: list[FieldError] = []


class Tried(Stored):
    """What kube-scheduler makes of a pod. An invalid pod has only errors."""

    gated: str = ""  # Why the pod is not attempted; its nodes are judged all the same
    failed: str = ""  # The error of a plugin that ended the attempt
    refused: dict[str, dict[str, Refusal]] = {}  # Node -> plugin -> why. Nodes without one are feasible.
    scores: dict[str, dict[str, Score]] | None = None  # Plugin -> node -> score. A plugin that skips the pod is absent.


class Answer(msgspec.Struct):
    """The answer to a case, in the order of the case."""

    error: str = ""
    running: list[Stored] | None = None
    tried: list[Tried] = []
    updated: list[list[FieldError]] = []  # The errors of each update


class Oracle(LineProgram[Answer]):
    """A running program."""

    path = PROGRAM
    answer = Answer
