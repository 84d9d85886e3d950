"""The webhook server: admission for an API server, over TLS.

`review` (AdmissionReview in and out) -> `handlers` (the pure chain, recorded) -> `server` (routes, HTTPS).
`certificates` makes and checks certificates, `keeper` maintains Secret, files and configuration objects.

Source:
    manager spec, 7
"""
