"""Pure part of the CRI proxy.

`records` stores pods and containers, `merging` merges answers of hook servers into requests, `registration` finds the
hook server to call, `calls` lists the intercepted CRI calls, `grpc` passes frames of calls, and `docker` translates the
same for the Docker API.
"""
