"""The caching allocator: when a block is used again, joined, split, given back; streams; settings."""

import gc
import threading

from common_utils import TestCase, run_in_process, run_tests

import torch

KIB, MIB = 1 << 10, 1 << 20


def block(nbytes, device="npu"):
    return torch.empty(nbytes, dtype=torch.uint8, device=device)


def stat(name):
    return torch.npu.memory_stats()[name]


class AllocatorCase(TestCase):
    def setUp(self):
        gc.collect()
        torch.npu.synchronize()
        torch.npu.empty_cache()


class TestBlocks(AllocatorCase):
    def test_a_freed_block_is_used_again_at_once(self):
        for nbytes in (1, 4 * KIB, MIB, 3 * MIB, 30 * MIB):
            first = block(nbytes)
            pointer = first.data_ptr()
            del first
            self.assertEqual(block(nbytes).data_ptr(), pointer)

    def test_sizes_are_rounded_to_512(self):
        before = torch.npu.memory_allocated()
        for nbytes, rounded in ((1, 512), (512, 512), (513, 1024), (4 * KIB, 4 * KIB)):
            kept = block(nbytes)
            self.assertEqual(torch.npu.memory_allocated() - before, rounded)
            self.assertEqual(kept.data_ptr() % 512, 0)
            del kept

    def test_small_and_large_segments(self):
        reserved = torch.npu.memory_reserved()
        small = block(100)
        self.assertEqual(torch.npu.memory_reserved() - reserved, 2 * MIB)
        large = block(2 * MIB)
        self.assertEqual(torch.npu.memory_reserved() - reserved, 22 * MIB)
        huge = block(33 * MIB + 1)
        self.assertEqual(torch.npu.memory_reserved() - reserved, 22 * MIB + 34 * MIB)
        del small, large, huge

    def test_an_empty_tensor_takes_nothing(self):
        before = torch.npu.memory_stats()
        empty = block(0)
        self.assertEqual(empty.data_ptr(), 0)
        after = torch.npu.memory_stats()
        self.assertEqual(after["allocation.all.allocated"], before["allocation.all.allocated"])

    def test_split_blocks_are_joined(self):
        parts = [block(256 * KIB) for _ in range(8)]
        start = min(p.data_ptr() for p in parts)
        self.assertEqual(sorted(p.data_ptr() - start for p in parts), [i * 256 * KIB for i in range(8)])
        segments = stat("segment.all.current")
        del parts[1::2]
        gc.collect()
        self.assertGreaterEqual(stat("inactive_split.all.current"), 3)
        parts.clear()
        self.assertEqual(stat("inactive_split.all.current"), 0)
        whole = block(MIB)
        self.assertEqual(stat("segment.all.current"), segments)
        self.assertEqual(whole.data_ptr(), start)

    def test_the_smallest_block_that_fits_is_taken(self):
        keep = []
        free = []
        for size in (64 * KIB, 16 * KIB, 32 * KIB):
            free.append(block(size))
            keep.append(block(512))
        expected = free[1].data_ptr()
        free.clear()
        self.assertEqual(block(10 * KIB).data_ptr(), expected)
        del keep

    def test_empty_cache_gives_whole_segments_back(self):
        free_before = torch.npu.mem_get_info()[0]
        big, small = block(64 * MIB), block(100)
        del big
        self.assertLessEqual(torch.npu.mem_get_info()[0], free_before - 64 * MIB)
        torch.npu.empty_cache()
        self.assertGreater(torch.npu.mem_get_info()[0], free_before - 4 * MIB)
        self.assertEqual(small.shape, (100,))

    def test_cached_memory_is_given_back_before_running_out(self):
        total = torch.npu.mem_get_info()[1]
        reserved = torch.npu.memory_reserved()
        torch.npu.set_per_process_memory_fraction((reserved + 256 * MIB) / total)
        try:
            retries = stat("num_alloc_retries")
            first = block(200 * MIB)
            del first
            second = block(230 * MIB)
            self.assertEqual(stat("num_alloc_retries"), retries + 1)
            with self.assertRaisesRegex(torch.OutOfMemoryError, "allowed"):
                block(100 * MIB)
            del second
        finally:
            torch.npu.set_per_process_memory_fraction(1.0)
        self.assertEqual(block(100 * MIB).numel(), 100 * MIB)

    def test_storage_grows_and_keeps_its_values(self):
        x = torch.arange(100, device="npu", dtype=torch.float32)
        x.resize_(5000)
        self.assertEqual(x[:100], torch.arange(100, dtype=torch.float32))
        x.untyped_storage().resize_(0)
        self.assertEqual(x.untyped_storage().size(), 0)

    def test_threads_share_the_pools(self):
        before = torch.npu.memory_allocated()
        errors = []

        def work(seed):
            try:
                live = []
                for i in range(400):
                    live.append(torch.full(((i * 37 + seed) % 5000 + 1,), float(seed), device="npu"))
                    if len(live) > 20:
                        first = live.pop(0)
                        if first[-1].item() != seed:
                            errors.append((seed, i))
            except RuntimeError as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])
        self.assertEqual(torch.npu.memory_allocated(), before)


class TestSmallBlocks(AllocatorCase):
    """Small blocks that were freed last are handed out again without being joined to their neighbours in between."""

    def test_the_block_freed_last_comes_first(self):
        kept = [block(2 * KIB) for _ in range(6)]
        pointers = [t.data_ptr() for t in kept]
        for index in (4, 1, 3):
            kept[index] = None
        self.assertEqual([block(2 * KIB).data_ptr() for _ in range(1)], [pointers[3]])
        again = [block(2 * KIB) for _ in range(3)]
        self.assertEqual([t.data_ptr() for t in again], [pointers[3], pointers[1], pointers[4]])

    def test_they_look_joined_from_outside(self):
        parts = [block(4 * KIB) for _ in range(5)]
        segments = torch.npu.memory_snapshot()
        start = min(t.data_ptr() for t in parts)
        parts.clear()
        (segment,) = [s for s in torch.npu.memory_snapshot() if s["address"] == start]
        self.assertEqual(len(segments), len(torch.npu.memory_snapshot()))
        self.assertEqual([(b["size"], b["state"]) for b in segment["blocks"]], [(2 * MIB, "inactive")])
        self.assertEqual(stat("inactive_split.all.current"), 0)
        self.assertEqual(stat("inactive_split_bytes.all.current"), 0)

    def test_statistics_count_every_request(self):
        names = ("allocation", "active", "allocated_bytes", "active_bytes", "requested_bytes")
        torch.npu.reset_peak_memory_stats()
        before = torch.npu.memory_stats()
        for _ in range(100):
            block(700)
        pair = [block(700), block(700)]
        del pair
        after = torch.npu.memory_stats()
        for name, each in zip(names, (1, 1, KIB, KIB, 700), strict=True):
            for pool in ("all", "small_pool"):
                change = {k: after[f"{name}.{pool}.{k}"] - before[f"{name}.{pool}.{k}"] for k in ("allocated", "freed")}
                self.assertEqual(change, {"allocated": 102 * each, "freed": 102 * each}, name)
                self.assertEqual(after[f"{name}.{pool}.current"], before[f"{name}.{pool}.current"])
                self.assertEqual(after[f"{name}.{pool}.peak"], before[f"{name}.{pool}.current"] + 2 * each)

    def test_they_are_joined_for_a_larger_request(self):
        parts = [block(64 * KIB) for _ in range(32)]  # a whole segment
        parts.sort(key=lambda t: t.data_ptr())
        segments, start = stat("segment.all.current"), parts[8].data_ptr()
        del parts[8:16]
        self.assertEqual(block(512 * KIB).data_ptr(), start)
        self.assertEqual(stat("segment.all.current"), segments)

    def test_empty_cache_takes_them(self):
        reserved = torch.npu.memory_reserved()
        for size in (1, 600, 5 * KIB, 64 * KIB):
            block(size)
        torch.npu.empty_cache()
        self.assertEqual(torch.npu.memory_reserved(), reserved)

    def test_streams_do_not_share_them(self):
        side = torch.npu.Stream()
        pointer = block(KIB).data_ptr()
        with torch.npu.stream(side):
            other = block(KIB)
        self.assertNotEqual(other.data_ptr(), pointer)
        self.assertEqual(block(KIB).data_ptr(), pointer)

    def test_with_history(self):
        block(3 * KIB)
        torch.npu.memory._record_memory_history()
        try:
            block(3 * KIB)
            actions = [e["action"] for e in torch.npu.memory._snapshot()["device_traces"][0]]
        finally:
            torch.npu.memory._record_memory_history(enabled=None)
        self.assertEqual(actions[-3:], ["alloc", "free_requested", "free_completed"])


class TestStreams(AllocatorCase):
    def busy(self):
        work = torch.ones(1500, 1500, device="npu")
        for _ in range(4):
            work = work @ work / 1500
        return work

    def test_blocks_belong_to_the_stream_they_were_made_on(self):
        side = torch.npu.Stream()
        first = block(4 * MIB)
        pointer = first.data_ptr()
        del first
        with torch.npu.stream(side):
            other = block(4 * MIB)
        self.assertNotEqual(other.data_ptr(), pointer)
        self.assertEqual(block(4 * MIB).data_ptr(), pointer)
        del other

    def test_record_stream_keeps_a_block_until_the_other_stream_is_done(self):
        side = torch.npu.Stream()
        x = torch.full((MIB,), 7.0, device="npu")
        pointer = x.data_ptr()
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            self.busy()
            y = x + 1
        x.record_stream(side)
        del x
        self.assertGreater(stat("active_bytes.all.current"), stat("allocated_bytes.all.current"))
        states = {b["state"] for s in torch.npu.memory_snapshot() for b in s["blocks"]}
        self.assertIn("active_pending_free", states)
        z = torch.full((MIB,), -1.0, device="npu")
        self.assertNotEqual(z.data_ptr(), pointer)
        side.synchronize()
        self.assertEqual(y.cpu(), torch.full((MIB,), 8.0))
        del z
        torch.npu.synchronize()
        again = [torch.empty(MIB, device="npu") for _ in range(2)]
        self.assertIn(pointer, [t.data_ptr() for t in again])
        self.assertEqual(stat("active_bytes.all.current"), stat("allocated_bytes.all.current"))

    def test_memory_that_a_storage_grows_out_of_is_kept_until_it_is_copied(self):
        side = torch.npu.Stream()
        x = torch.full((MIB,), 7.0, device="npu")
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            self.busy()
            x.resize_(2 * MIB)
        z = torch.full((MIB,), -1.0, device="npu")
        side.synchronize()
        self.assertEqual(x[:MIB].cpu(), torch.full((MIB,), 7.0))
        self.assertEqual(z.cpu(), torch.full((MIB,), -1.0))

    def test_record_stream_of_its_own_stream_changes_nothing(self):
        x = block(4 * MIB)
        pointer = x.data_ptr()
        x.record_stream(torch.npu.current_stream())
        del x
        self.assertEqual(block(4 * MIB).data_ptr(), pointer)

    def test_devices_do_not_share(self):
        before = torch.npu.memory_allocated(1)
        x = block(MIB, "npu:1")
        self.assertEqual(torch.npu.memory_allocated(1) - before, MIB)
        self.assertEqual(torch.npu.current_device(), 0)
        del x
        self.assertEqual(torch.npu.memory_allocated(1), before)


class TestSettings(TestCase):
    def run_ok(self, script, **environment):
        result = run_in_process("import torch\n" + script, **environment)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_max_split_size(self):
        self.run_ok(
            """
e = lambda n: torch.empty(n << 20, dtype=torch.uint8, device="npu")
x = e(60); pointer = x.data_ptr(); del x
assert e(30).data_ptr() != pointer            # an oversize block is not split for a smaller request
assert e(59).data_ptr() == pointer            # but taken for one of about its size
stats = torch.npu.memory_stats()
assert stats["max_split_size"] == 40 << 20, stats["max_split_size"]
assert stats["oversize_segments.allocated"] >= 1
""",
            PYTORCH_NPU_ALLOC_CONF="max_split_size_mb:40",
        )

    def test_roundup_power2_divisions(self):
        self.run_ok(
            """
before = torch.npu.memory_allocated()
x = torch.empty(1200 * 1024, dtype=torch.uint8, device="npu")
assert torch.npu.memory_allocated() - before == 1280 * 1024, torch.npu.memory_allocated() - before
""",
            PYTORCH_NPU_ALLOC_CONF="roundup_power2_divisions:4",
        )

    def test_garbage_collection(self):
        self.run_ok(
            """
torch.npu.set_per_process_memory_fraction(1024 / 8192)
e = lambda n: torch.empty(n << 20, dtype=torch.uint8, device="npu")
for size in range(40, 200, 8):
    del_me = e(size); del del_me
assert torch.npu.memory_reserved() < 700 << 20, torch.npu.memory_reserved() >> 20
assert torch.npu.memory_stats()["num_alloc_retries"] == 0
""",
            PYTORCH_NPU_ALLOC_CONF="garbage_collection_threshold:0.5",
        )

    def test_memory_is_freed_at_the_call_with_a_queue(self):
        self.run_ok(
            """
e = lambda: torch.ones(4 << 20, device="npu")
x = e()
y = torch.cos(x) + 1                          # two commands, x belongs to the first
before = torch.npu.memory_allocated()
del x
assert torch.npu.memory_allocated() == before - (16 << 20), (before, torch.npu.memory_allocated())
""",
            TASK_QUEUE_ENABLE="2",
        )

    def test_operands_that_are_dropped_at_once_are_read_in_time(self):
        for mode in "12":
            self.run_ok(
                """
import sys
sums = []
for i in range(300):
    x = torch.full((1000 + i,), float(i), device="npu")
    references = sys.getrefcount(x)
    y = torch.addcmul(x * 2, x, torch.full_like(x, 0.5)).clamp(min=-1.0)
    z = torch.where(y > 0, y, torch.zeros_like(y))
    assert sys.getrefcount(x) == references
    del x, y                                  # their memory is used again by what comes next
    sums.append((z.sum() / z.numel()).double())
values = torch.stack(sums).cpu()
assert torch.allclose(values, torch.arange(300).double() * 2.5), values
""",
                TASK_QUEUE_ENABLE=mode,
            )

    def test_what_is_not_supported_is_refused(self):
        for settings, words in (("expandable_segments:maybe", "'True' or 'False'"), ("no_such_key:1", "no_such_key")):
            script = 'import torch\ntry:\n    torch.empty(1, device="npu")\nexcept ValueError as e:\n    print(e)'
            result = run_in_process(script, PYTORCH_NPU_ALLOC_CONF=settings)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(words, result.stdout)


if __name__ == "__main__":
    run_tests()
