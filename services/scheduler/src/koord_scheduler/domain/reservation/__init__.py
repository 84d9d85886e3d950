"""Rules of Reservations: which pods may use one, whether a pod fits into it, which one a pod gets, and how it ends.

owners      which pods a Reservation is for
matching    whether a pod may use a Reservation
fit         whether a node has room for a pod that uses one of its Reservations
nomination  which of several Reservations of a node a pod gets
life_cycle  expiry, owners, garbage collection
books       all Reservations of the cluster, folded from facts
"""
