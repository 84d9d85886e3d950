"""`python -m koord_manager`: read flags, compose, run."""

import sys

from koordcore.service.run import run_service

from koord_manager.compose import compose
from koord_manager.settings import ManagerSettings


def main() -> None:
    sys.exit(run_service(ManagerSettings, compose))


if __name__ == "__main__":
    main()
