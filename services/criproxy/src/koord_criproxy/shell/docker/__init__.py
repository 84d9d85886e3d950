"""Docker mode: an HTTP proxy in front of dockerd. `http_proxy` serves it, and `interceptor` changes four requests."""
