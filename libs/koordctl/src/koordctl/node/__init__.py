"""One node: its state and the decisions about it (`koord explain node`), and this machine (`koord node`)."""
