"""Reservation: pods use what was reserved for them.

owners      which pods a Reservation is for
matching    whether a pod may use a Reservation
fit         whether a node has room for a pod that uses one of its Reservations
usable      the Reservations that pods of one class may use, and which one a pod gets
life_cycle  expiry, owners, garbage collection
books       all Reservations of the cluster, folded from facts
"""
