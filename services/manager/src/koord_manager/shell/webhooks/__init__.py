"""The webhook server: admission for an API server, over TLS.

`review` (AdmissionReview in and out) -> `handlers` (the pure chain, recorded) -> `server` (routes, HTTPS);
`certificates` makes and judges certificates, `keeper` keeps Secret, files and configuration objects right.

source    manager spec, 7
"""
