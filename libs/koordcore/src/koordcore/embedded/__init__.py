"""Run NATS, Postgres and our services as child processes on this machine. Python wheels contain the two servers.

`nats` and `postgres` are the two servers, each usable alone (`start`, `stop`, `kill`, `restart`) or as a `ProcessSpec`
in a `supervisor`, which runs a whole stack in the foreground or, with `background`, detached. Start reading at
`process`.
"""
