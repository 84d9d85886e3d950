"""ClusterColocationProfiles applied to pods and Reservations."""
