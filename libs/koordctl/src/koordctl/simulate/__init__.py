"""`koord simulate`: what placement policies do with a recorded workload. No cluster is needed."""
