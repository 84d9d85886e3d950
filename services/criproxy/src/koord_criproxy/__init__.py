"""CRI proxy: hook servers change pods and containers on their way from the kubelet to the container runtime."""
