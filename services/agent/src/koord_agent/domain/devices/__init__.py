"""Devices of the node: files of vendors (`xpu`), NVIDIA GPUs and RDMA functions (`hardware`), and their report."""
