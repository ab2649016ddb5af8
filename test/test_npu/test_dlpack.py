"""DLPack: npu memory given to others and taken from them, with the device's number and in the order of streams."""

from common_utils import TestCase, run_tests
from torch.utils.dlpack import DLDeviceType, from_dlpack, to_dlpack

import torch


class Producer:
    """A library that only speaks DLPack."""

    def __init__(self, tensor):
        self.tensor, self.stream = tensor, "not asked"

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, *, stream=None, **options):
        self.stream = stream
        return self.tensor.__dlpack__(stream=stream, **options)


class TestDLPack(TestCase):
    def test_memory_is_shared(self):
        for x in (torch.arange(6.0).npu().view(2, 3), torch.arange(4).npu(), torch.ones(2, 3).npu().t()[1:]):
            y = torch.from_dlpack(x)
            for fact in ("data_ptr", "stride"):
                self.assertEqual(getattr(y, fact)(), getattr(x, fact)())
            self.assertEqual((y.dtype, y.device), (x.dtype, x.device))
            y[0] = 7
            self.assertEqual(x, y)
            z = from_dlpack(to_dlpack(x))
            self.assertEqual(z.data_ptr(), x.data_ptr())

    def test_the_devices_number(self):
        for index in (0, 1):
            x = torch.ones(3, device=f"npu:{index}")
            self.assertEqual(x.__dlpack_device__(), (DLDeviceType.kDLExtDev, index))
            self.assertEqual(torch.from_dlpack(Producer(x)).device, x.device)

    def test_between_devices(self):
        x, cpu = torch.arange(4.0).npu(), torch.arange(4.0)
        for source, device in ((x, "cpu"), (cpu, "npu"), (cpu, "npu:1"), (x, "npu:1")):
            y = torch.from_dlpack(source, device=device)
            self.assertEqual((y.device.type, y), (torch.device(device).type, cpu))
            y += 1
            self.assertEqual(source, cpu)
        with self.assertRaisesRegex(ValueError, "without copying"):
            torch.from_dlpack(x, device="cpu", copy=False)
        y = torch.from_dlpack(x, copy=True)
        self.assertNotEqual(y.data_ptr(), x.data_ptr())

    def test_the_consumer_waits_for_the_producer(self):
        side, busy = torch.npu.Stream(), torch.randn(600, 600).npu()
        expected = busy.cpu() @ busy.cpu()
        for _ in range(3):
            product = torch.empty_like(busy)
            side.wait_stream(torch.npu.current_stream())
            with torch.npu.stream(side):
                for _ in range(8):
                    torch.mm(busy, busy, out=product)
                producer = Producer(product)
                consumer = torch.npu.Stream()
                with torch.npu.stream(consumer):
                    # What the producer does on its own stream has been submitted before the consumer asks.
                    with torch.npu.stream(side):
                        capsule = product.__dlpack__(stream=consumer.npu_stream)
                    copy = from_dlpack(capsule).clone()
            consumer.synchronize()
            self.assertEqual(copy, expected, prec=1e-3)
            with torch.npu.stream(consumer):
                torch.from_dlpack(producer)
            self.assertEqual(producer.stream, consumer.npu_stream)

    def test_streams_that_are_named(self):
        x = torch.ones(3).npu()
        for stream in (None, 0, -1, torch.npu.Stream().npu_stream):
            self.assertEqual(from_dlpack(x.__dlpack__(stream=stream)), x)
        with self.assertRaisesRegex(TypeError, "int"):
            x.__dlpack__(stream="0")

    def test_what_cannot_be_given(self):
        with self.assertRaisesRegex(BufferError, "private format"):
            torch.from_dlpack(torch.ones(4, 4).npu().npu_format_cast(29))
        with self.assertRaisesRegex(BufferError, "require gradient"):
            torch.from_dlpack(torch.ones(2).npu().requires_grad_())
        with self.assertRaises((BufferError, RuntimeError, TypeError, ValueError)):
            __import__("numpy").from_dlpack(torch.ones(2).npu())


if __name__ == "__main__":
    run_tests()
