"""The Reservation object: its document, and its status.

`protocol.reservation` is about the reservation of a node.
"""
