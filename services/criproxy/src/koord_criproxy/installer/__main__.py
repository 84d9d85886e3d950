"""`python -m koord_criproxy.installer`: flags -> compose -> run."""

import sys

from koordcore.service.run import run_service

from koord_criproxy.installer.compose import InstallerSettings, compose


def main() -> None:
    """Keep the proxy installed, or removed, until the process is stopped."""
    sys.exit(run_service(InstallerSettings, compose))


if __name__ == "__main__":
    main()
