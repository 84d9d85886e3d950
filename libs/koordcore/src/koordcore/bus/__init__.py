"""Adapters of the log's ports: in memory, and on NATS JetStream.

    names       what streams and subjects are called            streams, bootstrap   what exists on the server
    factory     the way in: one `Bus` per process               memory               everything without a server
    wire        nats-py with a faster parser and raw publishes  connection           one connection per process
    outcome     the table of append answers, pure               append, reads        writing, reading at the leader
    follower    strict order from a checkpoint                  jetstream            `EventLog` made of those three
    fold        the runner that services share                  replay               state as of a position or time

Source:
    event-bus spec
"""
