"""The Reservation object: resources of a node that only certain pods (owners) may use. Its document and its status.

`protocol.reservation` is about something else: resources of a node that no pod may use.
"""
