"""Access to the log: adapters of `koordcore.ports` on NATS JetStream, and in memory.

Start with `names` (streams and subjects) and `factory` (one `Bus` per process). `client` is the connection, `write`
appends events, `read` follows streams, `adapters` implements the ports, `folds` runs folds, `work` carries requests and
work queues, and `setup` creates what exists on the server.

Source: event-bus spec.
"""
