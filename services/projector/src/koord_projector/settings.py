"""Settings of the projector: flags, environment and file."""

from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from koordcore.service.settings import ServiceSettings
from pydantic import Field, SecretStr, model_validator


class ProjectorSettings(ServiceSettings):
    """Settings of the projector, besides those of every service."""

    service: ClassVar[str] = "projector"
    about: ClassVar[str] = (
        "Folds the log into Postgres, rows and position in one transaction, and serves the read API and the dashboard."
    )

    # Address of the database, with user and password.
    dsn: SecretStr = Field(
        SecretStr("postgresql://koord@127.0.0.1:5432/koord"), description="Address of the database, postgresql://..."
    )
    # File with the password, so that neither the address nor the environment holds it. It is read at the start.
    password_file: Path | None = Field(None, description="File with the password of the database, read at the start.")
    # Largest number of facts in one transaction.
    batch_events: int = Field(2000, ge=1, le=100_000, description="Facts of one transaction, at most.")
    # Whether the tables are deleted and folded again at the start.
    rebuild: bool = Field(False, description="Begin again from zero at this start.")
    # Number of connections for reads. At peaks, as many more may be opened.
    pool_size: int = Field(5, ge=1, le=100, description="Connections for reading; as many more may be opened at peaks.")
    # Age in days from which archived reports, explanations and rounds are deleted.
    archive_days: float = Field(
        14, gt=0, le=36_500, description="Days for which reports, explanations and rounds are kept in Postgres."
    )
    # Age in days from which facts are dropped from Postgres; None: never.
    fact_days: float | None = Field(
        None,
        gt=0,
        le=36_500,
        description="Days for which facts are kept in Postgres; needs --archive.",
    )
    # Address of Jaeger. The dashboard links to its page of a trace; "": no links.
    jaeger: str = Field(
        "",
        pattern=r"^(https?://[^\s<>\"]+)?$",
        description="Address of Jaeger, as browsers reach it. The dashboard links to its page of a trace.",
    )

    def address(self) -> str:
        """Return the address of the database with its password, as libpq reads it.

        Raises:
            OSError: The file with the password cannot be read.
        """
        dsn = self.dsn.get_secret_value()
        if self.password_file is None:
            return dsn
        password = self.password_file.read_text(encoding="utf-8").strip()
        return f"{dsn}{'&' if '?' in dsn else '?'}password={quote(password, safe='')}"

    @model_validator(mode="after")
    def _has_archive(self) -> "ProjectorSettings":
        if self.fact_days is not None and not self.archive:
            raise ValueError("fact_days: needs archive, the place of the archive that keeps older facts")
        return self
