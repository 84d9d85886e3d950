"""Admission: one pure chain for the webhooks, for `koord apply` and for `koord lint`.

`request.Request` and `context.Facts` enter `chain` (mutate, then validate), which returns `request.AdmissionDecision`.
Each webhook has its own module in `pods`, `quotas`, `nodes` and `colocation`; next to them are the steps that change a
pod.
"""
