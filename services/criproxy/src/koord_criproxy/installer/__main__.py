"""`python -m koord_criproxy.installer`: flags -> compose -> run."""

import sys

from koordcore.service.run import run_service

from koord_criproxy.installer.compose import InstallerSettings, compose


def main() -> None:
    sys.exit(run_service(InstallerSettings, compose))


if __name__ == "__main__":
    main()
