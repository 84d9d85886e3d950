"""Usage and interference of simulated pods as pure functions of time."""
