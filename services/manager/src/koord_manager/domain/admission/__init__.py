"""Decide admission with one pure chain for webhooks, `koord apply` and `koord lint`.

`chain` takes a `request.Request` and the cluster state of `context.Facts`. It changes the object, then validates it,
and returns a `request.AdmissionDecision`. The rules of each kind are in `pods`, `quotas`, `nodes` and
`colocation_profile`.
"""
