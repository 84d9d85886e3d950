"""Kubernetes objects: `koord apply`, `get`, `delete` and `lint`, and the columns of `koord get`."""
