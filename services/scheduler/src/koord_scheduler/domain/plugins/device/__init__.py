"""DeviceShare and GpuRepackHold."""
