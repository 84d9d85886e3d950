"""`python -m koord_scheduler`: flags -> compose -> run."""

import sys

from koordcore.service.run import run_service

from koord_scheduler.compose import compose
from koord_scheduler.settings import SchedulerSettings


def main() -> None:
    """Runs the scheduler until it is told to stop."""
    sys.exit(run_service(SchedulerSettings, compose))


if __name__ == "__main__":
    main()
