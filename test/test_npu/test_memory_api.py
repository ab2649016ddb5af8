"""torch.npu's memory functions: counters, peaks, snapshot, bounds, out of memory, pinned host memory."""

from common_utils import TestCase, run_in_process, run_tests

import torch

MIB = 1 << 20


class TestCounters(TestCase):
    def setUp(self):
        torch.npu.synchronize()
        torch.npu.empty_cache()

    def test_allocated_reserved_and_peaks(self):
        torch.npu.empty_cache()
        before = torch.npu.memory_allocated()
        # More than lies cached between what other tests keep, so that it is a segment of its own: whole 2 MiB.
        size = (torch.npu.memory_reserved() - before + 8 * MIB) // (2 * MIB) * (2 * MIB) + 2 * MIB
        torch.npu.reset_peak_memory_stats()
        first = torch.empty(size, dtype=torch.uint8, device="npu")
        self.assertEqual(torch.npu.memory_allocated(), before + size)
        self.assertGreaterEqual(torch.npu.memory_reserved(), torch.npu.memory_allocated())
        second = torch.empty(4 * MIB, dtype=torch.uint8, device="npu")
        del second
        self.assertEqual(torch.npu.memory_allocated(), before + size)
        self.assertEqual(torch.npu.max_memory_allocated(), before + size + 4 * MIB)
        torch.npu.reset_peak_memory_stats()
        self.assertEqual(torch.npu.max_memory_allocated(), before + size)
        reserved = torch.npu.memory_reserved()
        del first
        self.assertEqual(torch.npu.memory_allocated(), before)
        self.assertEqual(torch.npu.memory_reserved(), reserved)  # cached
        torch.npu.empty_cache()
        self.assertLess(torch.npu.memory_reserved(), reserved)
        self.assertGreaterEqual(torch.npu.max_memory_reserved(), reserved)

    def test_accelerator_agrees(self):
        kept = torch.empty(3 * MIB, device="npu")
        for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
            self.assertEqual(getattr(torch.accelerator, name)(), getattr(torch.npu, name)())
        self.assertEqual(torch.accelerator.get_memory_info(), torch.npu.mem_get_info())
        stats = torch.accelerator.memory_stats()
        self.assertEqual(stats["allocated_bytes.all.current"], torch.npu.memory_allocated())
        torch.accelerator.reset_peak_memory_stats()
        self.assertEqual(torch.npu.max_memory_allocated(), torch.npu.memory_allocated())
        del kept
        torch.accelerator.empty_cache()

    def test_keys_are_those_of_cuda(self):
        stats = torch.npu.memory_stats()
        for metric in (
            "allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
            "inactive_split_bytes", "requested_bytes",
        ):  # fmt: skip
            for pool in ("all", "large_pool", "small_pool"):
                for column in ("current", "peak", "allocated", "freed"):
                    self.assertIn(f"{metric}.{pool}.{column}", stats)
        for name in ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free"):
            self.assertIsInstance(stats[name], int)
        self.assertIn("oversize_allocations.current", stats)
        nested = torch.npu.memory_stats_as_nested_dict()
        self.assertEqual(nested["allocated_bytes"]["all"]["current"], stats["allocated_bytes.all.current"])
        self.assertEqual(list(stats), sorted(stats))

    def test_accumulated(self):
        torch.npu.reset_accumulated_memory_stats()
        self.assertEqual(torch.npu.memory_stats()["allocated_bytes.all.allocated"], 0)
        torch.empty(MIB, dtype=torch.uint8, device="npu")
        stats = torch.npu.memory_stats()
        self.assertEqual(stats["allocated_bytes.all.allocated"], MIB)
        self.assertEqual(stats["allocated_bytes.all.freed"], MIB)

    def test_per_device(self):
        before = torch.npu.memory_allocated(1)
        kept = torch.empty(MIB, dtype=torch.uint8, device="npu:1")
        self.assertEqual(torch.npu.memory_allocated("npu:1"), before + MIB)
        self.assertEqual(torch.npu.memory_allocated(torch.device("npu:1")), before + MIB)
        del kept
        self.assertEqual(torch.npu.memory_allocated(1), before)

    def test_snapshot_agrees_with_the_counters(self):
        kept = [torch.empty(size, dtype=torch.uint8, device="npu") for size in (100, 3 * MIB, 30 * MIB)]
        kept.pop(1)
        rows = [row for row in torch.npu.memory_snapshot() if row["device"] == 0]
        stats = torch.npu.memory_stats(0)
        for column, key in (
            ("allocated_size", "allocated_bytes"),
            ("total_size", "reserved_bytes"),
            ("active_size", "active_bytes"),
        ):
            self.assertEqual(sum(row[column] for row in rows), stats[f"{key}.all.current"])
        for pool in ("large", "small"):
            self.assertEqual(
                sum(row["total_size"] for row in rows if row["segment_type"] == pool),
                stats[f"reserved_bytes.{pool}_pool.current"],
            )
        for row in rows:
            self.assertEqual(sum(block["size"] for block in row["blocks"]), row["total_size"])
            used = sum(block["size"] for block in row["blocks"] if block["state"] == "active_allocated")
            self.assertEqual(used, row["allocated_size"])
            address = row["address"]
            for block in row["blocks"]:
                self.assertEqual(block["address"], address)
                self.assertIn(block["state"], ("active_allocated", "active_pending_free", "inactive"))
                address += block["size"]
        self.assertEqual(torch.npu.memory_snapshot(mempool_id=(0, 12345)), [])

    def test_history(self):
        record, snapshot = torch.npu.memory._record_memory_history, torch.npu.memory._snapshot
        record(max_entries=50, stacks="python")
        try:
            kept = torch.empty(3 * MIB, dtype=torch.uint8, device="npu")
            torch.empty(5 * MIB, dtype=torch.uint8, device="npu")
            taken = snapshot()
        finally:
            record(None)
        events = [(e["action"], e["size"]) for e in taken["device_traces"][0]]
        self.assertIn(("alloc", kept.nbytes), events)
        self.assertIn(("free_completed", 5 * MIB), events)
        event = next(e for e in taken["device_traces"][0] if e["size"] == kept.nbytes and e["action"] == "alloc")
        self.assertTrue(any(frame["name"] == "test_history" for frame in event["frames"]))
        self.assertEqual(event["addr"], kept.data_ptr())
        block = next(b for row in taken["segments"] for b in row["blocks"] if b["address"] == kept.data_ptr())
        self.assertTrue(any(frame["name"] == "test_history" for frame in block["frames"]))
        with self.assertRaises(ValueError):
            record("some")

    def test_summary(self):
        kept = torch.empty(5 * MIB, dtype=torch.uint8, device="npu:1")
        text = torch.npu.memory_summary(1)
        self.assertIn("PyTorch NPU memory summary, device ID 1", text)
        for row in ("Allocated memory", "NPU reserved memory", "from large pool", "Oversize NPU segments"):
            self.assertIn(row, text)
        self.assertEqual(len({len(line) for line in text.splitlines()}), 1)
        self.assertNotIn("from large pool", torch.npu.memory_summary(1, abbreviated=True))
        del kept

    def test_deprecated_names_warn(self):
        for name in ("memory_cached", "max_memory_cached", "reset_max_memory_allocated", "reset_max_memory_cached"):
            with self.assertWarns(FutureWarning):
                getattr(torch.npu, name)()

    def test_scalar_on_the_left_needs_one_buffer(self):
        x = torch.ones(4 * MIB, device="npu")
        for op in (lambda: 1 + x, lambda: 2 / x, lambda: 3 - x, lambda: 2 * x):
            torch.npu.synchronize()
            torch.npu.reset_peak_memory_stats()
            before = torch.npu.memory_allocated()
            op()
            self.assertLess(torch.npu.max_memory_allocated() - before, 1.5 * x.nbytes)


class TestBounds(TestCase):
    def test_mem_get_info(self):
        free, total = torch.npu.mem_get_info()
        self.assertTrue(0 < free <= total)
        self.assertEqual(torch.npu.device_memory_used(), total - free)
        kept = torch.empty(64 * MIB, dtype=torch.uint8, device="npu")
        self.assertLessEqual(torch.npu.mem_get_info()[0], free)
        del kept

    def test_out_of_memory(self):
        for size, words in ((80 << 30, "80.00 GiB"), (1 << 50, "1024.00 TiB|1048576.00 GiB|1.00 PiB")):
            with self.assertRaises(torch.OutOfMemoryError) as caught:
                torch.empty(size, dtype=torch.uint8, device="npu")
            text = str(caught.exception)
            self.assertIn("NPU out of memory. Tried to allocate ", text)
            self.assertRegex(text, words)
            self.assertIn(" out of memory.", text)
            for part in ("NPU 0", "total capacity", "free", "reserved", "allocated"):
                self.assertIn(part, text)
            self.assertIsInstance(caught.exception, RuntimeError)
            self.assertIsInstance(caught.exception, torch.npu.OutOfMemoryError)
        self.assertEqual((torch.ones(4, device="npu") + 1).sum().item(), 8.0)
        self.assertGreaterEqual(torch.npu.memory_stats()["num_ooms"], 2)

    def test_memory_fraction(self):
        self.assertEqual(torch.npu.get_per_process_memory_fraction(), 1.0)
        total = torch.npu.get_device_properties(0).total_memory
        torch.npu.set_per_process_memory_fraction(0.25)
        try:
            self.assertEqual(torch.npu.get_per_process_memory_fraction(0), 0.25)
            with self.assertRaises(torch.OutOfMemoryError):
                torch.empty(total // 2, dtype=torch.uint8, device="npu")
        finally:
            torch.npu.set_per_process_memory_fraction(1.0)
        with self.assertRaises(TypeError):
            torch.npu.set_per_process_memory_fraction(1)
        with self.assertRaises(ValueError):
            torch.npu.set_per_process_memory_fraction(1.5)

    def test_raw_allocation(self):
        before = torch.npu.memory_allocated()
        for stream in (None, torch.npu.Stream(), 0):
            pointer = torch.npu.caching_allocator_alloc(MIB, stream=stream)
            self.assertGreater(pointer, 0)
            self.assertEqual(torch.npu.memory_allocated(), before + MIB)
            torch.npu.caching_allocator_delete(pointer)
            self.assertEqual(torch.npu.memory_allocated(), before)
        with self.assertRaises(TypeError):
            torch.npu.caching_allocator_alloc(16, stream="default")
        self.assertEqual(torch.npu.get_allocator_backend(), "native")


class TestHostMemory(TestCase):
    def test_counters(self):
        pinned = torch.ones(MIB).pin_memory()
        stats = torch.npu.host_memory_stats()
        self.assertGreaterEqual(stats["active_bytes.current"], pinned.nbytes)
        self.assertGreaterEqual(stats["allocated_bytes.current"], stats["active_bytes.current"])
        self.assertGreaterEqual(stats["num_host_alloc"], 1)
        self.assertIn("host_alloc_time.avg", stats)
        nested = torch.npu.host_memory_stats_as_nested_dict()
        self.assertEqual(nested["active_bytes"]["current"], stats["active_bytes.current"])
        torch.npu.reset_peak_host_memory_stats()
        torch.npu.reset_accumulated_host_memory_stats()
        stats = torch.npu.host_memory_stats()
        self.assertEqual(stats["allocated_bytes.allocated"], 0)
        self.assertGreaterEqual(stats["active_bytes.current"], pinned.nbytes)

    def test_a_freed_block_is_used_again_but_not_while_it_is_copied(self):
        torch.npu.synchronize()
        pinned = torch.empty(MIB, pin_memory=True)
        pointer = pinned.data_ptr()
        del pinned
        pinned = torch.empty(MIB, pin_memory=True)
        self.assertEqual(pinned.data_ptr(), pointer)
        pinned.fill_(3.0)
        work = torch.ones(1500, 1500, device="npu")
        for _ in range(4):
            work = work @ work / 1500
        moved = pinned.to("npu", non_blocking=True)
        del pinned
        other = torch.empty(MIB, pin_memory=True).fill_(9.0)
        self.assertEqual(moved.cpu(), torch.full((MIB,), 3.0))
        self.assertEqual(other[0].item(), 9.0)

    def test_before_initialisation(self):
        script = """
import torch
assert torch.npu.memory_stats() == {} and torch.npu.host_memory_stats() == {} and torch.npu.memory_snapshot() == []
assert torch.npu.memory_allocated() == 0 and torch.npu.max_memory_reserved() == 0
assert not torch.npu.is_initialized()
"""
        result = run_in_process(script)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_pinned_memory_before_initialisation(self):
        script = """
import torch
held = torch.ones(1000).pin_memory()
assert not torch.npu.is_initialized()
stats = torch.npu.host_memory_stats()
print(stats["num_host_alloc"], stats["allocated_bytes.current"] >= held.nbytes)
"""
        result = run_in_process(script)
        self.assertEqual((result.stdout.split(), result.stderr), (["1", "True"], ""))


if __name__ == "__main__":
    run_tests()
