"""Serve the admission webhooks for an API server, over TLS.

`review` reads and writes AdmissionReviews. `handlers` runs the pure chain and records the decision. `server` has the
routes. `certificates` makes and checks certificates. `keeper` maintains the Secret, the files and the configuration
objects.

Source:
    manager spec, 7
"""
