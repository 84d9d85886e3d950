"""Changes of objects that other services ask the manager for.

`facts` turns a change into facts, in a cluster without an API server. `api_requests` turns it into a request to the
API server.
"""
