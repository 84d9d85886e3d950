# Stands in for nats:2.15.1-alpine where images cannot be pulled: the server of the wheel that the embedded stack uses.
FROM python:3.11.14-slim-bookworm
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends wget >/dev/null && rm -rf /var/lib/apt/lists/*
COPY nats-server /usr/local/bin/nats-server
ENTRYPOINT ["nats-server"]
