"""What the gateway to Kubernetes decides, as pure functions: which facts mirror an object, which writes are owed, what
an answer means, where fold and API server have drifted apart, and how a log begins anew from the objects.
"""
