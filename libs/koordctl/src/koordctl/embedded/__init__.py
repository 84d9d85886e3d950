"""The embedded stack: all services of Koordinator as processes on this machine, with simulated nodes."""
