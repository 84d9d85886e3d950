"""Stages at which hooks run, and the ways by which a call reaches the agent.

Source: runtime spec, 2.1, 2.2.
"""

from enum import StrEnum


class Mode(StrEnum):
    """The way by which a hook is called.

    PROXY: a CRI proxy calls the RuntimeHookService. NRI: the container runtime calls the agent as its plug-in.
    RECONCILER: a cycle of the agent sets values that the other modes missed.
    """

    PROXY = "Proxy"
    NRI = "NRI"
    RECONCILER = "Reconciler"


class Stage(StrEnum):
    """A stage in the life of a pod or container, by its name in registration files."""

    PRE_RUN_POD_SANDBOX = "PreRunPodSandbox"
    POST_STOP_POD_SANDBOX = "PostStopPodSandbox"
    PRE_CREATE_CONTAINER = "PreCreateContainer"
    PRE_START_CONTAINER = "PreStartContainer"
    POST_START_CONTAINER = "PostStartContainer"
    PRE_UPDATE_CONTAINER = "PreUpdateContainerResources"
    POST_STOP_CONTAINER = "PostStopContainer"
    PRE_REMOVE_POD_SANDBOX = "PreRemoveRunPodSandbox"
    """Only the NRI mode has this stage."""


POD_STAGES = (Stage.PRE_RUN_POD_SANDBOX, Stage.POST_STOP_POD_SANDBOX, Stage.PRE_REMOVE_POD_SANDBOX)
"""Stages of a pod; the other stages are those of a container."""
