"""Admission: one pure chain for the webhooks, for `koord apply` and for `koord lint`.

`request` (what is asked) and `facts` (what is known) -> `chain` (mutate, then validate) -> `request.Verdict`. Each
webhook has its own file; `colocation_profile`, `strategic_merge`, `multi_quota_tree`, `device_resource_spec` and
`extended_resource_spec` are the steps that change a pod.

source    manager spec, 8 to 13
"""
