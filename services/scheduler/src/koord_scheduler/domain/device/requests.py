"""Device requests of a pod: the names of `koordcore.protocol.device_requests`, which admission reads too."""

from koordcore.protocol.device_requests import (
    DEVICE_NAMES,
    FPGA_TYPE,
    GPU_NAMES,
    GPU_TYPE,
    RDMA_TYPE,
    WHOLE,
    WHOLE_CARDS,
    Amounts,
    TypeRequest,
    device_requests,
    filled,
)

__all__ = [
    "DEVICE_NAMES",
    "FPGA_TYPE",
    "GPU_NAMES",
    "GPU_TYPE",
    "RDMA_TYPE",
    "WHOLE",
    "WHOLE_CARDS",
    "Amounts",
    "TypeRequest",
    "device_requests",
    "filled",
]
