"""`python -m koord_devicediscovery`: flags -> compose -> run."""

import sys

from koordcore.service.optional_imports import without_optional

with without_optional():
    from koordcore.service.run import run_service

    from koord_devicediscovery.compose import compose
    from koord_devicediscovery.settings import DiscoverySettings


def main() -> None:
    sys.exit(run_service(DiscoverySettings, compose))


if __name__ == "__main__":
    main()
