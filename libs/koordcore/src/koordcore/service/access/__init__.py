"""Access control of HTTP servers: authentication, roles, limits and the audit of requests."""
