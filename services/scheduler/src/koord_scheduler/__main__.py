"""Entry point of `python -m koord_scheduler`."""

import sys

from koordcore.service.run import run_service

from koord_scheduler.compose import compose
from koord_scheduler.settings import SchedulerSettings


def main() -> None:
    sys.exit(run_service(SchedulerSettings, compose))


if __name__ == "__main__":
    main()
