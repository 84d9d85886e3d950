"""`python -m koord_criproxy`: flags -> compose -> run."""

import sys

from koordcore.service.run import run_service

from koord_criproxy.compose import compose
from koord_criproxy.settings import CriProxySettings


def main() -> None:
    sys.exit(run_service(CriProxySettings, compose))


if __name__ == "__main__":
    main()
