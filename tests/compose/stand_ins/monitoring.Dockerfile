# Stands in for an image of the collector, Jaeger or Prometheus: the program, with a user of its own as in that image.
FROM python:3.11.14-slim-bookworm
ARG PROGRAM
COPY ${PROGRAM} /usr/local/bin/program
RUN install -d -o 10001 /prometheus
USER 10001
ENTRYPOINT ["/usr/local/bin/program"]
