# Stands in for postgres:16.11-alpine where images cannot be pulled: Debian's Postgres behind the variables of that image.
FROM python:3.11.14-slim-bookworm
# The user id of the official image: on Kubernetes the container runs as this user.
RUN groupadd --gid 70 postgres && useradd --uid 70 --gid 70 --home-dir /var/lib/postgresql postgres \
    && apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends postgresql-15 >/dev/null && rm -rf /var/lib/apt/lists/*
ENV PATH=/usr/lib/postgresql/15/bin:$PATH PGDATA=/var/lib/postgresql/data
COPY postgres-entrypoint.sh /usr/local/bin/docker-entrypoint.sh
RUN chmod 755 /usr/local/bin/docker-entrypoint.sh
ENTRYPOINT ["docker-entrypoint.sh"]
