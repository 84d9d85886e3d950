"""The installer puts the CRI proxy onto the host that its pod runs on, and removes it: `koord-criproxy-installer`.

No pod can be the proxy, because the kubelet needs it to start any pod. Read `steps` first.
"""
