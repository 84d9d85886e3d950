"""gRPC calls on HTTP/2, as far as the proxy has to read them to pass them on: frames, messages, and the tunnel."""
