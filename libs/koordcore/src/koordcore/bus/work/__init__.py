"""Requests to services: endpoints that answer at once, work queues with workers, and dead letters."""
