"""`python -m koord_descheduler`: read flags, compose, run."""

import sys

from koordcore.service.run import run_service

from koord_descheduler.compose import compose
from koord_descheduler.settings import DeschedulerSettings


def main() -> None:
    sys.exit(run_service(DeschedulerSettings, compose))


if __name__ == "__main__":
    main()
