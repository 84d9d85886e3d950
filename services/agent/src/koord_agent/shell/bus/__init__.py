"""The bus as the agent uses it: desired state in, facts and reports out."""
