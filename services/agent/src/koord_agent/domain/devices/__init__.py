"""Devices of the node: description files of vendors (`xpu`), NVIDIA GPUs (`gpu`), RDMA functions (`rdma`).

`device` has the types of all of them. `inventory` makes the reported event.
"""
