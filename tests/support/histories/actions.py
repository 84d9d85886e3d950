"""The steps that a history is made of, and a hypothesis strategy of them."""

from typing import NamedTuple

from hypothesis import strategies as st


class Action(NamedTuple):
    """One step of a history: what, on which pod or node (small numbers), with which variation."""

    what: str
    subject: int
    variation: int


ACTIONS = (
    "add-pod", "change-pod", "delete-pod", "place", "release", "add-node", "change-node", "delete-node",
    "overcommit", "withdraw", "slo", "agent", "started", "stopped", "suppress", "unsuppress",
    "disturbed", "undisturbed", "agent-evicts", "knobs", "hooks", "proxy",
    "agent-stops", "agent-topology", "agent-devices",
    "namespace", "no-namespace", "class", "no-class", "workload", "scale", "no-workload",
    "config", "bad-config", "no-config", "skip", "restored", "nominate", "unnominate", "reallocate", "device-fails",
    "gang", "gang-phase", "quota", "explanation", "topology", "gpu-workload", "drain", "migration", "round",
    "reserve", "take",
    "reservation-wait", "reservation-end", "reservation-collect", "reservation-delete",
    "custom", "no-custom",
    "recommend", "no-recommendation", "no-quota-profile",
    "bound", "bind-failed", "resized", "evict", "evicted", "evict", "evict-delayed", "not-evicted",
    "drift", "no-drift", "genesis",
    "evict", "evict-withdrawn",
)  # fmt: skip

actions = st.lists(
    st.builds(Action, st.sampled_from(ACTIONS), st.integers(0, 5), st.integers(0, 3)), min_size=0, max_size=60
)
"""Hypothesis strategy of action sequences."""
