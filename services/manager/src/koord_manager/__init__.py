"""The manager: admits and mirrors objects, computes batch and mid resources, renders the policy of each node."""
