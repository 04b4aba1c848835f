"""Errors that the driver reports, from a library that holds some ready."""

from __future__ import annotations

from types import SimpleNamespace

from host_fake_nvml import FakeGpu, FakeNvml, NVMLError
from host_recorded import machine

from aiperf.host.facts import Gpu
from aiperf.host.incidents import judge
from aiperf.host.nvml import Nvml
from aiperf.host.telemetry import Sampler
from aiperf.host.xids import XidWatch

TIMEOUT = 10


class WithEvents(FakeNvml):
    def __init__(self, *gpus, errors=(), supported=8):
        super().__init__(*gpus)
        self.errors, self.supported, self.registered, self.freed = list(errors), supported, [], 0

    def nvmlEventSetCreate(self):
        return "events"

    def nvmlEventSetFree(self, events):
        self.freed += 1

    def nvmlDeviceGetSupportedEventTypes(self, gpu):
        return self.supported

    def nvmlDeviceRegisterEvents(self, gpu, kinds, events):
        self.registered.append((gpu.uuid, kinds))

    def nvmlEventSetWait_v2(self, events, milliseconds):
        assert milliseconds == 0
        if not self.errors:
            raise NVMLError(TIMEOUT)
        gpu, number = self.errors.pop(0)
        return SimpleNamespace(device=gpu, eventData=number)


def test_each_error_is_told_once_with_its_gpu():
    first, second = FakeGpu("GPU-a"), FakeGpu("GPU-b")
    library = WithEvents(first, second, errors=[(second, 79), (first, 13)])
    watch = XidWatch(Nvml(library), {0: first, 3: second})
    assert library.registered == [("GPU-a", 8), ("GPU-b", 8)]
    assert watch.seen() == ["GPU 3 reported Xid 79", "GPU 0 reported Xid 13"]
    assert watch.seen() == []
    watch.close()
    assert library.freed == 1
    assert watch.seen() == []


def test_a_gpu_without_events_is_not_watched():
    gpu = FakeGpu()
    assert not XidWatch(Nvml(WithEvents(gpu, supported=0)), {0: gpu}).watching
    assert XidWatch(Nvml(FakeNvml(gpu)), {0: gpu}).seen() == []
    assert XidWatch(None, {}).seen() == []


def test_an_error_during_a_pair_voids_it(tmp_path):
    gpu = FakeGpu()
    library = WithEvents(gpu, errors=[(gpu, 31)])
    facts = [Gpu(0, "NVIDIA H200", gpu.uuid, "9.0", 1, 1)]
    sampler = Sampler(gpus=facts, library=library, period=0.01, root=machine(tmp_path))
    sampler.start()
    telemetry = sampler.stop()
    assert telemetry.xids == ("GPU 0 reported Xid 31",)
    found = [(i.kind, i.detail, i.voids) for i in judge(telemetry, ())]
    assert found == [("xid", "GPU 0 reported Xid 31", True)]
