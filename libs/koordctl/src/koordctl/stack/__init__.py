"""The embedded stack: `koord up`, `down` and `status`, its processes and its nodes."""
