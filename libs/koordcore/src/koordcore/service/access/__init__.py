"""Who may send which request over HTTP: authentication, roles, limits and the audit of requests."""
