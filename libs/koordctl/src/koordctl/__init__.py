"""The `koord` command: starts and stops the embedded stack, and asks the services' APIs.

`app` (the command tree) -> `commands/` (one file per group) -> `stack` (which processes make a stack), `clients`
(HTTP to manager and projector), `output` (tables, YAML, JSON).
"""
