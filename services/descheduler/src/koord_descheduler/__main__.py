"""`python -m koord_descheduler`: read flags, compose, run."""

import sys

from koordcore.service.run import run_service

from koord_descheduler.compose import compose
from koord_descheduler.settings import DeschedulerSettings


def main() -> None:
    """Run the descheduler until it is stopped."""
    sys.exit(run_service(DeschedulerSettings, compose))


if __name__ == "__main__":
    main()
