"""Rounds: what they decide and remember, their effects and reports, and dry runs of them.

`memory` has the facts that a round writes, `effects` what is carried out, `reporting` what users see. A dry run
(`dry_run`) plays rounds (`player`), asks the scheduler where pods land (`moves`), proves the gain (`proving`).
"""
