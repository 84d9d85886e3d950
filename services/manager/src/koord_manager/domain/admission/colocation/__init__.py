"""Apply ClusterColocationProfiles to pods and Reservations."""
