"""The names of the plugin lists in a profile of the configuration, as in kube-scheduler."""

from enum import StrEnum


class Point(StrEnum):
    """The name of a plugin list in a profile of the configuration, such as `preFilter`.

    The members are in cycle order.
    """

    PRE_ENQUEUE = "preEnqueue"
    QUEUE_SORT = "queueSort"
    PRE_FILTER = "preFilter"
    FILTER = "filter"
    POST_FILTER = "postFilter"
    PRE_SCORE = "preScore"
    SCORE = "score"
    RESERVE = "reserve"
    PERMIT = "permit"
    PRE_BIND = "preBind"
    BIND = "bind"
    POST_BIND = "postBind"
