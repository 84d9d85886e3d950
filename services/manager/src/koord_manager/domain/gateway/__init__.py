"""Decisions of the gateway to Kubernetes as pure functions.

They are: facts that mirror an object, pending writes, the meaning of an answer, drift between fold and API server, and
the beginning of a log from objects.
"""
