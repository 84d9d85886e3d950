"""Run the gateway to Kubernetes: mirror the API server into the log, and write decisions back.

`api` is the client. `listwatch` follows one resource, `ingest` turns observed objects into facts. `outbox` carries out
pending writes, `event_recorder` records Kubernetes events. `scale_reader` asks for the scales of controllers that are
not mirrored. `sweep` compares the fold with the API server. `running` runs all of them while this instance leads.
"""
