"""Pure part of the CRI proxy.

`records` has what the proxy remembers of pods and containers, `merging` how answers of hook servers change requests,
`registration` which hook server is asked, `calls` which calls of CRI are intercepted, `grpc` how frames of calls pass,
and `docker` what the Docker API calls the same things.
"""
