"""`python -m koord_projector`: flags -> compose -> run."""

import sys

from koordcore.service.run import run_service

from koord_projector.compose import compose
from koord_projector.settings import ProjectorSettings


def main() -> None:
    sys.exit(run_service(ProjectorSettings, compose))


if __name__ == "__main__":
    main()
