"""`python -m koord_agent`: flags -> compose -> run."""

import sys

from koordcore.service.run import run_service

from koord_agent.compose import compose
from koord_agent.settings import AgentSettings


def main() -> None:
    """Runs the agent until it is told to stop."""
    sys.exit(run_service(AgentSettings, compose))


if __name__ == "__main__":
    main()
