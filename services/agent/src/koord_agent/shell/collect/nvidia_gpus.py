"""NVIDIA GPUs and their health, read through NVML in a thread of their own, because a broken GPU can block a call.

Source: runtime spec, 9.3.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar, cast

import pynvml
from koordcore.service.telemetry.logging import logger

from koord_agent.domain.devices.device import DeviceReport
from koord_agent.domain.devices.hardware import Gpu, GpuFault, gpu_device, gpu_labels, xid_fault
from koord_agent.domain.failure import failure
from koord_agent.domain.metrics.gpu_usage import GpuProcess, GpuReading
from koord_agent.shell.collect.devices import PciBus

T = TypeVar("T")
_log: Final = logger("agent.gpus")
# pynvml has no types.
_nvml: Final[Any] = pynvml
_SHORT_ADDRESS: Final = len("0000:3b:00.0")
"""Length of a PCI address in sysfs. NVML writes the domain with eight digits instead of four."""
USAGE_READINGS: Final = 3
"""Number of intervals between readings after which the usage of the last reading is too old to be used."""
_LOST: Final = GpuFault("GpuIsLost", "the GPU has fallen off the bus")
_UNWATCHED: Final = GpuFault("DeviceHealthCheckNotSupported", "the GPU does not report its critical errors")


class NvidiaGpus:
    """Watches the NVIDIA GPUs of this machine through NVML, in a thread. A machine without NVML has no such GPUs.

    A GPU with a critical Xid error stays faulty until it has vanished from the list of NVML and has come back, as
    after a reset, or until the agent starts again.

    Args:
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
        self._usage: tuple[tuple[GpuReading, ...], float] = (), 0.0
        """GPUs with their processes, and the time of this reading in monotonic seconds. It is replaced as a whole."""
        self._sampled_us: dict[str, int] = {}
        """UUID of a GPU -> time of its newest sample of processes in microseconds, as the driver counts."""
        self._troubles: dict[tuple[str, int | None], str] = {}
        """Event of the log and index of a GPU -> why the call fails at present."""
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Load NVML, list the GPUs, and watch them in a thread. No-op on a machine without NVML."""
        try:
            _nvml.nvmlInit()
        except Exception as error:  # noqa: BLE001 - without NVML, the agent still protects the node
            _log.info("nvml_not_used", reason=str(error))
            return
        made = self._safely("gpu_health_not_watched", _nvml.nvmlEventSetCreate)
        events = None if isinstance(made, Exception) else made
        self._safely("gpus_not_read", partial(self._look, events))
        self._thread = threading.Thread(target=self._watch, args=(events,), name="nvidia-gpus", daemon=True)
        self._thread.start()

    def report(self) -> DeviceReport:
        """Return the GPUs that the thread found at its last reading, with their health. It never waits."""
        return self._report

    def usage(self) -> tuple[GpuReading, ...]:
        """Return the GPUs with their processes that the thread found at its last reading. It never waits.

        While a call blocks, or the GPUs are not listed, the last reading is repeated for `USAGE_READINGS` intervals.
        After that, no GPU has a usage.
        """
        usage, read_at = self._usage
        return usage if time.monotonic() - read_at <= USAGE_READINGS * self._every_ms / 1000 else ()

    def stop(self) -> None:
        """End the thread after the call in progress. A call that a broken GPU blocks is not waited for."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=2 * self._every_ms / 1000)

    def _watch(self, events: Any) -> None:
        while not self._stopping.is_set():
            waited = None
            if events is not None:
                waited = self._safely("gpu_events_failed", partial(self._wait_for_fault, events))
            if events is None or isinstance(waited, Exception):
                self._stopping.wait(self._every_ms / 1000)
            self._safely("gpus_not_read", partial(self._look, events))
        with contextlib.suppress(_nvml.NVMLError):
            _nvml.nvmlShutdown()

    def _safely(self, event: str, call: Callable[[], T], gpu: int | None = None) -> T | Exception:
        """Return the result of a call, or the error that it raised. An error that lasts is logged once, as `event`.

        The thread must go on, because it hears of GPUs that fail. The library has no types, and a driver may give any
        answer, such as a name that is not valid UTF-8. So any error counts. `gpu` None: the call is about all of them.
        """
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 - a failing GPU hides no other one
            reason = str(error) if isinstance(error, _nvml.NVMLError) else failure("", error)
            if self._troubles.get((event, gpu)) != reason:
                self._troubles[event, gpu] = reason
                _log.warning(event, gpu=gpu, reason=reason)
            return error
        self._troubles.pop((event, gpu), None)
        return result

    def _wait_for_fault(self, events: Any) -> None:
        """Wait for a critical Xid error until the list of GPUs has to be read again, and mark its GPU as faulty."""
        try:
            event = _nvml.nvmlEventSetWait_v2(events, self._every_ms)
        except _nvml.NVMLError_Timeout:
            return
        fault = xid_fault(int(event.eventData)) if event.eventType == _nvml.nvmlEventTypeXidCriticalError else None
        if fault is None:
            return
        try:
            uuid = _text(_nvml.nvmlDeviceGetUUID(event.device))
        except Exception:  # noqa: BLE001 - the error may concern any GPU
            uuid = ""
        for gpu in self._known.values():
            if uuid in ("", gpu.uuid):
                self._faults[gpu.bus_id] = fault
        _log.error("gpu_failed", uuid=uuid or "all", code=fault.code)

    def _look(self, events: Any) -> None:
        """Read the list of GPUs and their processes, and make them the result of `report` and `usage`.

        If a call fails, the other GPUs are read all the same. A known GPU is lost if the driver refuses to describe it.
        If its description cannot be understood, its last one stays. If there is no list, all of the last result stays.
        A GPU whose processes cannot be read has no usage.
        """
        count = self._safely("gpus_not_listed", lambda: int(_nvml.nvmlDeviceGetCount()))
        if isinstance(count, Exception):
            return
        found: dict[int, Gpu] = {}
        lost: dict[str, GpuFault] = {}
        usage: list[GpuReading] = []
        for index in range(count):
            read = self._safely("gpu_not_read", partial(_gpu_at, index), index)
            if isinstance(read, Exception):
                known = self._known.get(index)
                if known is not None:
                    found[index] = known
                    if isinstance(read, _nvml.NVMLError):
                        lost[known.bus_id] = _LOST
                continue
            handle, gpu = read
            found[index] = gpu
            self._register(handle, index, gpu, events)
            running = self._safely("gpu_usage_not_read", partial(self._processes, handle, gpu), index)
            if not isinstance(running, Exception):
                usage.append(running)
        present = {gpu.bus_id for gpu in found.values()}
        self._faults = {bus_id: fault for bus_id, fault in self._faults.items() if bus_id in present}
        self._watched &= present
        self._unwatched &= present
        self._troubles = {key: reason for key, reason in self._troubles.items() if key[1] is None or key[1] < count}
        self._known = found
        self._report = self._made(found, lost)
        self._usage = tuple(usage), time.monotonic()

    def _processes(self, handle: Any, gpu: Gpu) -> GpuReading:
        """The newest sample of a process counts; without one its cores are unused.

        If the driver does not sample processes, as with MIG, the usage of cores is unknown.
        """
        memory: dict[int, int] = {}
        cores: dict[int, tuple[int, int]] = {}
        for running in _nvml.nvmlDeviceGetComputeRunningProcesses(handle):
            memory[int(running.pid)] = int(running.usedGpuMemory or 0)
        has_cores = True
        try:
            since = self._sampled_us.get(gpu.uuid, 0)
            for sample in _nvml.nvmlDeviceGetProcessUtilization(handle, since):
                newest = cores.get(int(sample.pid), (-1, 0))
                cores[int(sample.pid)] = max(newest, (int(sample.timeStamp), int(sample.smUtil)))
            self._sampled_us[gpu.uuid] = max((at for at, _ in cores.values()), default=since)
        except _nvml.NVMLError_NotFound:
            pass  # no sample since the last reading
        except _nvml.NVMLError:
            has_cores = False
        used = (GpuProcess(pid, float(cores.get(pid, (0, 0))[1]), size) for pid, size in sorted(memory.items()))
        return GpuReading(
            minor=gpu.minor,
            uuid=gpu.uuid,
            memory_bytes=gpu.memory_bytes,
            processes=tuple(used),
            has_cores=has_cores,
        )

    def _register(self, handle: Any, index: int, gpu: Gpu, events: Any) -> None:
        """A GPU that refuses its events is asked again at the next reading."""
        if events is None or gpu.bus_id in self._watched:
            return
        ask = partial(_nvml.nvmlDeviceRegisterEvents, handle, _nvml.nvmlEventTypeXidCriticalError, events)
        if isinstance(self._safely("gpu_not_watched", ask, index), Exception):
            self._unwatched.add(gpu.bus_id)
        else:
            self._watched.add(gpu.bus_id)
            self._unwatched.discard(gpu.bus_id)

    def _made(self, found: Mapping[int, Gpu], lost: Mapping[str, GpuFault]) -> DeviceReport:
        unwatched = dict.fromkeys(self._unwatched, _UNWATCHED)
        faults = {**unwatched, **lost, **self._faults}
        devices = [gpu_device(gpu, self._pci.locate(gpu.bus_id), faults.get(gpu.bus_id)) for gpu in found.values()]
        version = self._safely("gpu_driver_not_read", lambda: _text(_nvml.nvmlSystemGetDriverVersion()))
        driver = None if isinstance(version, Exception) else version
        return DeviceReport.of(devices, labels=gpu_labels([gpu.name for gpu in found.values()], driver))


def _gpu_at(index: int) -> tuple[Any, Gpu]:
    """A GPU whose name cannot be read has none."""
    handle = _nvml.nvmlDeviceGetHandleByIndex(index)
    name = ""
    with contextlib.suppress(Exception):
        name = _text(_nvml.nvmlDeviceGetName(handle))
    return handle, Gpu(
        uuid=_text(_nvml.nvmlDeviceGetUUID(handle)),
        minor=int(_nvml.nvmlDeviceGetMinorNumber(handle)),
        bus_id=_text(_nvml.nvmlDeviceGetPciInfo(handle).busId).lower()[-_SHORT_ADDRESS:],
        memory_bytes=int(_nvml.nvmlDeviceGetMemoryInfo(handle).total),
        name=name,
    )


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else cast("str", value)
