# Stands in for natsio/nats-server-config-reloader where images cannot be pulled.
FROM python:3.11.14-slim-bookworm
COPY nats-reloader.sh /usr/local/bin/nats-server-config-reloader
RUN chmod 755 /usr/local/bin/nats-server-config-reloader
ENTRYPOINT ["nats-server-config-reloader"]
