"""The proxy in front of a runtime with CRI v1: gRPC frames pass unread, except those of intercepted calls."""
