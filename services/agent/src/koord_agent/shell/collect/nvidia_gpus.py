"""NVIDIA GPUs and their health, read through NVML in a thread of their own, because a broken GPU can block a call.

Source: runtime spec, 9.3.
"""

import contextlib
import threading
from collections.abc import Mapping
from typing import Any, Final, cast

import pynvml
from koordcore.service.telemetry.logging import logger

from koord_agent.domain.devices.device import DeviceReport
from koord_agent.domain.devices.gpu import Gpu, GpuFault, gpu_device, gpu_labels, xid_fault
from koord_agent.domain.metrics.gpu_usage import GpuProcess, GpuReading
from koord_agent.shell.collect.pci import PciBus

_log: Final = logger("agent.gpus")
# pynvml has no types.
_nvml: Final[Any] = pynvml
_SHORT_ADDRESS: Final = len("0000:3b:00.0")
"""Length of a PCI address in sysfs. NVML writes the domain with eight digits instead of four."""
_LOST: Final = GpuFault("GpuIsLost", "the GPU has fallen off the bus")
_UNWATCHED: Final = GpuFault("DeviceHealthCheckNotSupported", "the GPU does not report its critical errors")


class NvidiaGpus:
    """Watches the NVIDIA GPUs of this machine through NVML, in a thread. A machine without NVML has no such GPUs.

    A GPU with a critical Xid error stays faulty until it has vanished from the list of NVML and has come back, as
    after a reset, or until the agent starts again.

    Args:
        pci: Gives the location of a GPU by its PCI address.
        every_ms: Milliseconds between two readings of the list of GPUs.
    """

    def __init__(self, pci: PciBus, *, every_ms: int) -> None:
        self._pci = pci
        self._every_ms = every_ms
        self._known: dict[int, Gpu] = {}
        self._faults: dict[str, GpuFault] = {}
        self._unwatched: set[str] = set()
        self._watched: set[str] = set()
        self._report = DeviceReport()
        self._usage: tuple[GpuReading, ...] = ()
        self._sampled_us: dict[str, int] = {}
        """UUID of a GPU -> time of its newest sample of processes in microseconds, as the driver counts."""
        self._trouble = ""
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Load NVML, list the GPUs, and watch them in a thread. No-op on a machine without NVML."""
        try:
            _nvml.nvmlInit()
        except _nvml.NVMLError as error:
            _log.info("nvml_not_used", reason=str(error))
            return
        events = self._event_set()
        self._look_safely(events)
        self._thread = threading.Thread(target=self._watch, args=(events,), name="nvidia-gpus", daemon=True)
        self._thread.start()

    def report(self) -> DeviceReport:
        """Return the GPUs that the thread found at its last reading, with their health. It never waits."""
        return self._report

    def usage(self) -> tuple[GpuReading, ...]:
        """Return the GPUs with their processes that the thread found at its last reading. It never waits."""
        return self._usage

    def stop(self) -> None:
        """End the thread after the call in progress. A call that a broken GPU blocks is not waited for."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=2 * self._every_ms / 1000)

    def _watch(self, events: Any) -> None:
        while not self._stopping.is_set():
            if events is None:
                self._stopping.wait(self._every_ms / 1000)
            else:
                self._wait_for_fault(events)
            self._look_safely(events)
        with contextlib.suppress(_nvml.NVMLError):
            _nvml.nvmlShutdown()

    def _event_set(self) -> Any:
        try:
            return _nvml.nvmlEventSetCreate()
        except _nvml.NVMLError as error:
            _log.warning("gpu_health_not_watched", reason=str(error))
            return None

    def _wait_for_fault(self, events: Any) -> None:
        """Wait for a critical Xid error until the list of GPUs has to be read again, and mark its GPU as faulty."""
        try:
            event = _nvml.nvmlEventSetWait_v2(events, self._every_ms)
        except _nvml.NVMLError_Timeout:
            return
        except _nvml.NVMLError as error:
            _log.warning("gpu_events_failed", reason=str(error))
            self._stopping.wait(self._every_ms / 1000)
            return
        fault = xid_fault(int(event.eventData)) if event.eventType == _nvml.nvmlEventTypeXidCriticalError else None
        if fault is None:
            return
        try:
            uuid = _text(_nvml.nvmlDeviceGetUUID(event.device))
        except _nvml.NVMLError:
            uuid = ""
        for gpu in self._known.values():
            if uuid in ("", gpu.uuid):
                self._faults[gpu.bus_id] = fault
        _log.error("gpu_failed", uuid=uuid or "all", code=fault.code)

    def _look_safely(self, events: Any) -> None:
        """Read the GPUs. After an error that nobody expected, such as a name that is no UTF-8, the last result stays.

        The thread must go on, because it hears of GPUs that fail.
        """
        try:
            self._look(events)
        except Exception as error:  # noqa: BLE001 - the library has no types, and its driver any answer
            reason = f"{type(error).__name__}: {error}"
            if reason != self._trouble:
                self._trouble = reason
                _log.error("gpus_not_read", reason=reason, exc_info=error)
            self._stopping.wait(self._every_ms / 1000)

    def _look(self, events: Any) -> None:
        """Read the list of GPUs and their processes, and make them the result of `report` and `usage`."""
        try:
            count = int(_nvml.nvmlDeviceGetCount())
        except _nvml.NVMLError as error:
            _log.warning("gpus_not_listed", reason=str(error))
            return
        found: dict[int, Gpu] = {}
        lost: dict[str, GpuFault] = {}
        usage: list[GpuReading] = []
        for index in range(count):
            try:
                handle = _nvml.nvmlDeviceGetHandleByIndex(index)
                found[index] = gpu = _gpu(handle)
            except _nvml.NVMLError as error:
                known = self._known.get(index)
                if known is not None:
                    found[index] = known
                    lost[known.bus_id] = _LOST
                _log.warning("gpu_not_read", index=index, reason=str(error))
                continue
            self._register(handle, gpu, events)
            processes = self._processes(handle, gpu)
            usage.append(GpuReading(minor=gpu.minor, uuid=gpu.uuid, memory_bytes=gpu.memory_bytes, processes=processes))
        present = {gpu.bus_id for gpu in found.values()}
        self._faults = {bus_id: fault for bus_id, fault in self._faults.items() if bus_id in present}
        self._watched &= present
        self._unwatched &= present
        self._known = found
        self._report = self._made(found, lost)
        self._usage = tuple(usage)

    def _processes(self, handle: Any, gpu: Gpu) -> tuple[GpuProcess, ...]:
        """Return the processes of a GPU. The newest sample of a process counts; without one its cores are unused."""
        memory: dict[int, int] = {}
        cores: dict[int, tuple[int, int]] = {}
        with contextlib.suppress(_nvml.NVMLError):
            for running in _nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                memory[int(running.pid)] = int(running.usedGpuMemory or 0)
        with contextlib.suppress(_nvml.NVMLError):  # no sample since the last reading is an error, too
            since = self._sampled_us.get(gpu.uuid, 0)
            for sample in _nvml.nvmlDeviceGetProcessUtilization(handle, since):
                newest = cores.get(int(sample.pid), (-1, 0))
                cores[int(sample.pid)] = max(newest, (int(sample.timeStamp), int(sample.smUtil)))
            self._sampled_us[gpu.uuid] = max((at for at, _ in cores.values()), default=since)
        return tuple(GpuProcess(pid, float(cores.get(pid, (0, 0))[1]), used) for pid, used in sorted(memory.items()))

    def _register(self, handle: Any, gpu: Gpu, events: Any) -> None:
        if events is None or gpu.bus_id in self._watched or gpu.bus_id in self._unwatched:
            return
        try:
            _nvml.nvmlDeviceRegisterEvents(handle, _nvml.nvmlEventTypeXidCriticalError, events)
        except _nvml.NVMLError:
            self._unwatched.add(gpu.bus_id)
        else:
            self._watched.add(gpu.bus_id)

    def _made(self, found: Mapping[int, Gpu], lost: Mapping[str, GpuFault]) -> DeviceReport:
        unwatched = dict.fromkeys(self._unwatched, _UNWATCHED)
        faults = {**unwatched, **lost, **self._faults}
        devices = [gpu_device(gpu, self._pci.locate(gpu.bus_id), faults.get(gpu.bus_id)) for gpu in found.values()]
        return DeviceReport.of(devices, labels=gpu_labels([gpu.name for gpu in found.values()], _driver()))


def _gpu(handle: Any) -> Gpu:
    name = ""
    with contextlib.suppress(_nvml.NVMLError):
        name = _text(_nvml.nvmlDeviceGetName(handle))
    return Gpu(
        uuid=_text(_nvml.nvmlDeviceGetUUID(handle)),
        minor=int(_nvml.nvmlDeviceGetMinorNumber(handle)),
        bus_id=_text(_nvml.nvmlDeviceGetPciInfo(handle).busId).lower()[-_SHORT_ADDRESS:],
        memory_bytes=int(_nvml.nvmlDeviceGetMemoryInfo(handle).total),
        name=name,
    )


def _driver() -> str | None:
    try:
        return _text(_nvml.nvmlSystemGetDriverVersion())
    except _nvml.NVMLError:
        return None


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else cast("str", value)
