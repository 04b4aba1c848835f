"""An NVML library with recorded answers of an H200, handed to constructors in place of pynvml.

What must not live here: tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

NOT_SUPPORTED, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND = 3, 9, 12


class NVMLError(Exception):
    def __init__(self, value):
        super().__init__(f"NVML error {value}")
        self.value = value


@dataclass
class FakeGpu:
    uuid: str = "GPU-541da432-5553"
    pids: list[int] = field(default_factory=list)
    reasons: int = 0
    sm_clock: int = 1980
    application_clock: int = 1980
    ecc_errors: int = 0


class FakeNvml:
    NVMLError = NVMLError
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_P2P_CAPS_INDEX_READ = (0,)  # as the real package has it
    NVML_P2P_STATUS_OK = 0

    def __init__(self, *gpus, init_error=None, silent=(), peer=0):
        self.gpus, self.init_error, self.silent, self.peer = gpus, init_error, set(silent), peer
        self.open = 0

    def __getattribute__(self, name):
        if name.startswith("nvmlDevice") and name in object.__getattribute__(self, "silent"):

            def refuse(*arguments):
                raise NVMLError(NOT_SUPPORTED)

            return refuse
        return object.__getattribute__(self, name)

    def nvmlInit(self):
        if self.init_error is not None:
            raise NVMLError(self.init_error)
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlSystemGetDriverVersion(self):
        return b"580.159.04"

    def nvmlSystemGetCudaDriverVersion_v2(self):
        return 13000

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, gpu):
        return gpu.uuid

    def nvmlDeviceGetName(self, gpu):
        return "NVIDIA H200"

    def nvmlDeviceGetMemoryInfo(self, gpu):
        return SimpleNamespace(total=150754820096, free=150109880320)

    def nvmlDeviceGetCudaComputeCapability(self, gpu):
        return (9, 0)

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu):
        return 700000

    def nvmlDeviceGetEccMode(self, gpu):
        return [1, 1]

    def nvmlDeviceGetMigMode(self, gpu):
        return [0, 0]

    def nvmlDeviceGetMaxClockInfo(self, gpu, kind):
        return 1980

    def nvmlDeviceGetVbiosVersion(self, gpu):
        return "96.00.A5.00.1A"

    def nvmlDeviceGetP2PStatus(self, first, second, index):
        assert index == 0
        return self.peer

    def nvmlDeviceGetComputeRunningProcesses(self, gpu):
        return [SimpleNamespace(pid=pid) for pid in gpu.pids]

    def nvmlDeviceGetClockInfo(self, gpu, kind):
        return gpu.sm_clock if kind == 1 else 3201

    def nvmlDeviceGetTemperature(self, gpu, sensor):
        return 55

    def nvmlDeviceGetPowerUsage(self, gpu):
        return 493772

    def nvmlDeviceGetUtilizationRates(self, gpu):
        return SimpleNamespace(gpu=88, memory=40)

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu):
        return gpu.reasons

    def nvmlDeviceGetApplicationsClock(self, gpu, kind):
        return gpu.application_clock

    def nvmlDeviceGetTotalEccErrors(self, gpu, kind, counter):
        return gpu.ecc_errors


EVERY_DEVICE_CALL = [name for name in vars(FakeNvml) if name.startswith("nvmlDevice") and "Handle" not in name]
EVERY_DEVICE_CALL.remove("nvmlDeviceGetCount")
