"""The descheduler: rounds, drains, closed nodes, migrations, and the audit."""
