"""The file by which the agent registers its hook server with a CRI proxy.

Source: runtime spec, 2.7. Vectors: registration.
"""

import json
from collections.abc import Collection, Iterable
from typing import Final

from koord_agent.domain.hook_stages.pipeline import FailurePolicy
from koord_agent.domain.hook_stages.stages import Stage

REGISTRATION_FILE: Final = "koordlet.json"


def registration(
    stages: Iterable[Stage], *, endpoint: str, policy: FailurePolicy, disabled: Collection[str] = ()
) -> str:
    """Return the text of the file that registers the agent's hook server with CRI proxies.

    Args:
        stages: Stages at which plug-ins run.
        endpoint: Path of the socket, as a proxy on the machine sees it.
        policy: How a proxy reacts if a call fails.
        disabled: Names of stages to leave out, from the flag -runtime-hooks-disable-stages.
    """
    content = {
        "remote-endpoint": endpoint,
        "failure-policy": policy.value,
        "runtime-hooks": sorted(stage.value for stage in stages if stage.value not in disabled),
    }
    return json.dumps(content, indent="\t")
