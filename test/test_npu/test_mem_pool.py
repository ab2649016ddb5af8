"""Memory pools, pluggable allocators, expandable segments, and the allocator's other names of torch.cuda.memory."""

import gc
import subprocess
import sys
import tempfile
import textwrap
import threading
import warnings
from pathlib import Path

from common_utils import TestCase, run_tests

import torch

MIB = 1 << 20
DEVICE = "npu:0"

ALLOCATOR = r"""
#include <sys/types.h>
#include <stddef.h>
int aclrtMalloc(void**, size_t, int);
int aclrtFree(void*);
static long live = 0, calls = 0, freed_bytes = 0;
void* take(ssize_t size, int device, void* stream) {
  void* p = 0;
  if (aclrtMalloc(&p, (size_t)size, 0)) return 0;
  ++live; ++calls;
  return p;
}
void give(void* p, ssize_t size, int device, void* stream) { aclrtFree(p); --live; freed_bytes += size; }
long live_blocks(void) { return live; }
long all_calls(void) { return calls; }
long bytes_freed(void) { return freed_bytes; }
"""


def build(folder: str) -> str:
    """A shared library with an allocator over ACL's functions."""
    source, library = Path(folder, "allocator.c"), Path(folder, "liballocator.so")
    source.write_text(ALLOCATOR)
    acl = Path(torch.__file__).parent / "lib" / "ascend_sim"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", str(source), "-o", str(library), f"-L{acl}", "-lascendcl", f"-Wl,-rpath,{acl}"],
        check=True,
    )
    return str(library)


def run(code: str, **environment: str) -> subprocess.CompletedProcess:
    import os

    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )


class TestMemPool(TestCase):
    def setUp(self):
        gc.collect()
        torch.npu.synchronize()
        torch.npu.empty_cache()

    def test_pools_share_no_segment_with_others(self):
        pool, other = torch.npu.MemPool(), torch.npu.MemPool()
        self.assertNotEqual(pool.id, other.id)
        with torch.npu.use_mem_pool(pool):
            inside = [torch.ones(64, device=DEVICE), torch.ones(3 * MIB, device=DEVICE)]
            with torch.npu.use_mem_pool(other):
                nested = torch.ones(64, device=DEVICE)
        outside = torch.ones(64, device=DEVICE)

        def owner(t):
            at = t.data_ptr()
            (segment,) = (s for s in torch.npu.memory_snapshot() if s["address"] <= at < s["address"] + s["total_size"])
            return segment["segment_pool_id"]

        self.assertEqual([owner(t) for t in inside], [pool.id] * 2)
        self.assertEqual((owner(nested), owner(outside)), (other.id, (0, 0)))
        self.assertEqual({s["segment_pool_id"] for s in pool.snapshot()}, {pool.id})
        self.assertEqual(
            sum((t.sum() for t in (*inside, nested, outside)), torch.tensor(0.0, device=DEVICE)).item(),
            64 * 3 + 3 * MIB,
        )

    def test_blocks_come_back_to_their_pool(self):
        pool = torch.npu.MemPool()
        with torch.npu.use_mem_pool(pool):
            first = torch.empty(1000, device=DEVICE)
            address = first.data_ptr()
        del first  # freed outside
        self.assertNotEqual(torch.empty(1000, device=DEVICE).data_ptr(), address)
        with torch.npu.use_mem_pool(pool):
            self.assertEqual(torch.empty(1000, device=DEVICE).data_ptr(), address)

    def test_life_of_a_pool(self):
        before = torch.npu.memory_reserved()
        pool = torch.npu.MemPool()
        self.assertEqual(pool.use_count(), 1)
        with torch.npu.use_mem_pool(pool):
            self.assertEqual(pool.use_count(), 2)
            kept, gone = torch.ones(5 * MIB, device=DEVICE), torch.ones(64, device=DEVICE)
        self.assertEqual(pool.use_count(), 1)
        del gone
        torch.npu.empty_cache()  # a pool in use keeps what it has
        self.assertEqual(len(pool.snapshot()), 2)
        identity = pool.id
        del pool
        gc.collect()
        # What is free has gone back; what a tensor has stays with it.
        self.assertEqual(len(torch.npu.memory_snapshot(identity)), 1)
        self.assertEqual(kept.sum().item(), 5 * MIB)
        del kept
        torch.npu.empty_cache()
        self.assertEqual(torch.npu.memory_snapshot(identity), [])
        self.assertEqual(torch.npu.memory_reserved(), before)

    def test_only_this_thread_allocates_there(self):
        pool, seen = torch.npu.MemPool(), []

        def elsewhere():
            seen.append(torch.ones(64, device=DEVICE))

        with torch.npu.use_mem_pool(pool):
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
        self.assertEqual(pool.snapshot(), [])
        self.assertEqual(seen[0].sum().item(), 64)

    def test_two_threads_share_a_pool(self):
        pool, failed = torch.npu.MemPool(), []

        def work():
            try:
                for _ in range(20):
                    with torch.npu.use_mem_pool(pool):
                        x = torch.full((1000,), 2.0, device=DEVICE)
                    if x.sum().item() != 2000:
                        failed.append(x)
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])
        self.assertEqual(pool.use_count(), 1)

    def test_no_split(self):
        whole, split = torch.npu.MemPool(no_split=True), torch.npu.MemPool()
        for pool, blocks in ((whole, 1), (split, 2)):
            with torch.npu.use_mem_pool(pool):
                x = torch.ones(64, device=DEVICE)
            self.assertEqual([len(s["blocks"]) for s in pool.snapshot()], [blocks])
            del x

    def test_use_on_oom(self):
        code = """
        import torch
        for use in (False, True):
            pool = torch.npu.MemPool(use_on_oom=use)
            with torch.npu.use_mem_pool(pool):
                x = torch.empty(150 << 20, dtype=torch.uint8, device="npu")
            del x
            try:
                y = torch.ones(140 << 20, dtype=torch.uint8, device="npu")
                print("found", y[-1].item())
            except torch.OutOfMemoryError:
                print("out of memory")
            del pool
            y = None
        """
        done = run(code, ASCEND_SIM_MEMORY="256M")
        self.assertEqual(done.stdout.split("\n")[:2], ["out of memory", "found 1"], done.stderr)

    def test_wrong_use(self):
        pool = torch.npu.MemPool()
        with self.assertRaisesRegex(RuntimeError, "nothing allocates to memory pool"):
            torch._C._npu_endAllocateToPool(0, pool.id)
        with self.assertRaisesRegex(RuntimeError, "has no memory pool"):
            torch._C._npu_releasePool(0, (0, 12345))
        with self.assertRaisesRegex(ValueError, "public pool"):
            torch._C._npu_beginAllocateToPool(0, (0, 0))

    def test_history_names_the_pool(self):
        pool = torch.npu.MemPool()
        torch.npu.memory._record_memory_history()
        try:
            with torch.npu.use_mem_pool(pool):
                torch.ones(64, device=DEVICE)
            traces = torch.npu.memory._snapshot()["device_traces"][0]
        finally:
            torch.npu.memory._record_memory_history(None)
        self.assertIn(pool.id, {t["segment_pool_id"] for t in traces if t["action"] == "alloc"})


class TestPluggableAllocator(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.library = build(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_as_the_source_of_a_pool(self):
        import ctypes

        calls = ctypes.CDLL(self.library)
        allocator = torch.npu.memory.NPUPluggableAllocator(self.library, "take", "give")
        pool = torch.npu.MemPool(allocator.allocator())
        with torch.npu.use_mem_pool(pool):
            x, y = torch.ones(1000, device=DEVICE), torch.ones(1000, device=DEVICE)
        self.assertEqual(calls.live_blocks(), 1)  # one segment
        self.assertEqual((x + y).sum().item(), 2000)
        del x, y, pool
        gc.collect()
        torch.npu.empty_cache()
        self.assertEqual((calls.live_blocks(), calls.bytes_freed()), (0, 2 * MIB))

    def test_in_the_place_of_the_caching_allocator(self):
        code = f"""
        import ctypes, torch
        calls = ctypes.CDLL({self.library!r})
        allocator = torch.npu.memory.NPUPluggableAllocator({self.library!r}, "take", "give")
        torch.npu.memory.change_current_allocator(allocator)
        print(torch.npu.get_allocator_backend())
        net = torch.nn.Linear(8, 4).to("npu")
        loss = net(torch.ones(2, 8, device="npu")).sum()
        loss.backward()
        assert net.weight.grad.sum().item() == 64
        assert calls.all_calls() >= 5, calls.all_calls()
        try:
            torch.npu.memory_allocated()
        except NotImplementedError as error:
            print(error)
        torch.npu.empty_cache()
        try:
            torch.npu.memory.change_current_allocator(allocator)
        except RuntimeError as error:
            print(str(error)[:40])
        del net, loss
        print(calls.live_blocks())
        """
        done = run(code)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0], "pluggable", done.stderr)
        self.assertIn("NPUPluggableAllocator does not have memory statistics", lines[1])
        self.assertEqual(lines[2], "the npu allocator has been used already ")
        self.assertEqual(lines[3], "0")

    def test_too_late_or_missing(self):
        torch.ones(1, device=DEVICE)
        allocator = torch.npu.memory.NPUPluggableAllocator(self.library, "take", "give")
        with self.assertRaisesRegex(RuntimeError, "has been used already"):
            torch.npu.memory.change_current_allocator(allocator)
        with self.assertRaises(AttributeError):
            torch.npu.memory.NPUPluggableAllocator(self.library, "no_such", "give")
        with self.assertRaises(OSError):
            torch.npu.memory.NPUPluggableAllocator("/nowhere.so", "take", "give")
        self.assertEqual(torch.npu.get_allocator_backend(), "native")


class TestExpandableSegments(TestCase):
    def run_ok(self, code: str, **environment: str) -> str:
        done = run(code, **{"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True", **environment})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_requests_of_growing_sizes_leave_nothing_behind(self):
        # 30, 40, ... MiB in 256 MiB: ordinary segments of the smaller ones would be in the way of the last.
        code = """
        import torch
        kept = []
        for mib in range(10, 100, 10):
            x = torch.full((mib << 20,), mib, dtype=torch.uint8, device="npu")
            assert x[-1].item() == mib
            kept = [x[:16].clone()]
            del x
        assert torch.npu.memory_reserved() <= 140 << 20, torch.npu.memory_reserved()
        (large,) = [s for s in torch.npu.memory_snapshot() if s["segment_type"] == "large"]
        assert large["is_expandable"]
        torch.npu.empty_cache()
        print(torch.npu.memory_reserved() >> 20)
        """
        self.assertEqual(self.run_ok(code, ASCEND_SIM_MEMORY="256M").strip(), "2")

    def test_values_and_statistics_under_random_requests(self):
        code = """
        import random, torch
        random.seed(0)
        live = {}
        side = torch.npu.Stream()
        for step in range(600):
            if live and random.random() < 0.45:
                key = random.choice(list(live))
                x, value = live.pop(key)
                assert (x == value).all().item(), (step, key)
            else:
                size = random.choice([100, 5000, 300_000, 3 << 20, 11 << 20, 33 << 20])
                try:
                    with torch.npu.stream(side if random.random() < 0.3 else torch.npu.default_stream()):
                        x = torch.full((size,), step % 251, dtype=torch.uint8, device="npu")
                        torch.npu.current_stream().synchronize()
                    live[step] = (x, step % 251)
                except torch.OutOfMemoryError:
                    live.clear()
            if step % 50 == 49:
                torch.npu.empty_cache()
            if step % 10 == 9:
                segments = torch.npu.memory_snapshot()
                stats = torch.npu.memory_stats()
                assert sum(s["total_size"] for s in segments) == stats["reserved_bytes.all.current"]
                assert len(segments) == stats["segment.all.current"], (len(segments), stats["segment.all.current"])
                free = [b for s in segments for b in s["blocks"] if b["state"] == "inactive" and len(s["blocks"]) > 1]
                assert len(free) == stats["inactive_split.all.current"]
                assert sum(b["size"] for b in free) == stats["inactive_split_bytes.all.current"]
                assert sum(b["size"] for s in segments for b in s["blocks"] if b["state"] == "active_allocated") \\
                    == stats["allocated_bytes.all.current"]
                for s in segments:
                    assert sum(b["size"] for b in s["blocks"]) == s["total_size"]
        live.clear()
        x = None
        torch.npu.synchronize()
        torch.npu.empty_cache()
        print(torch.npu.memory_reserved(), torch.npu.memory_stats()["segment.all.current"])
        """
        self.assertEqual(self.run_ok(code, ASCEND_SIM_MEMORY="512M").strip(), "0 0")

    def test_pools_fractions_and_the_end_of_memory(self):
        code = """
        import torch
        pool = torch.npu.MemPool()
        with torch.npu.use_mem_pool(pool):
            x = torch.ones(30 << 18, device="npu")
        assert [s["is_expandable"] for s in pool.snapshot()] == [True]
        torch.npu.set_per_process_memory_fraction(0.5)
        try:
            torch.empty(200 << 20, dtype=torch.uint8, device="npu")
        except torch.OutOfMemoryError as error:
            print("bound")
        torch.npu.set_per_process_memory_fraction(1.0)
        try:
            torch.empty(300 << 20, dtype=torch.uint8, device="npu")
        except torch.OutOfMemoryError as error:
            print("end")
        y = torch.ones(100 << 20, dtype=torch.uint8, device="npu")
        assert x.sum().item() == 30 << 18 and y[-1].item() == 1
        del x, pool
        torch.npu.empty_cache()
        print(torch.npu.memory_reserved() >> 20)
        """
        self.assertEqual(self.run_ok(code, ASCEND_SIM_MEMORY="256M").split(), ["bound", "end", "100"])

    def test_a_network_trains_alike(self):
        code = """
        import torch
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).to("npu")
        optimizer = torch.optim.Adam(net.parameters())
        x = torch.randn(128, 64).to("npu")
        for _ in range(5):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
        print(loss.item())
        """
        self.assertEqual(self.run_ok(code), run(code).stdout)

    def test_switched_on_later(self):
        code = """
        import torch, warnings
        warnings.simplefilter("ignore")
        x = torch.ones(64, device="npu")
        torch.npu.memory._set_allocator_settings("expandable_segments:True")
        y = torch.ones(3 << 20, device="npu")
        print([s["is_expandable"] for s in torch.npu.memory_snapshot()].count(True), (x.sum() + y.sum()).item())
        """
        done = run(code)
        self.assertEqual(done.stdout.split(), ["1", str(float(64 + (3 << 20)))], done.stderr)


class TestOtherNames(TestCase):
    def test_host_empty_cache(self):
        pinned = torch.empty(MIB, pin_memory=True)
        del pinned
        gc.collect()
        self.assertGreater(torch.npu.host_memory_stats()["allocated_bytes.current"], 0)
        torch.npu.host_empty_cache()
        self.assertEqual(torch.npu.host_memory_stats()["allocated_bytes.current"], 0)

    def test_set_allocator_settings(self):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.npu.memory._set_allocator_settings("max_split_size_mb:256")
        self.assertEqual([w.category for w in seen], [FutureWarning])
        self.assertEqual(torch.npu.memory_stats()["max_split_size"], 256 * MIB)
        with self.assertRaisesRegex(ValueError, "no_such_key"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.npu.memory._set_allocator_settings("no_such_key:1")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.npu.memory._set_allocator_settings("max_split_size_mb:1000000000")

    def test_uuid(self):
        uuid = torch.npu.get_device_properties(0).uuid
        self.assertRegex(str(uuid), "^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
        self.assertEqual(bytes(uuid.bytes).hex(), str(uuid).replace("-", ""))
        code = (
            "import torch; print(*(torch.npu.get_device_properties(i).uuid for i in range(torch.npu.device_count())))"
        )
        seen = run(code, ASCEND_SIM_DEVICE_COUNT="3").stdout.split()
        self.assertEqual((seen[0], len(set(seen))), (str(uuid), 3))
        hidden = run(code, ASCEND_SIM_DEVICE_COUNT="3", ASCEND_RT_VISIBLE_DEVICES="2,1").stdout.split()
        self.assertEqual(hidden, [seen[2], seen[1]])

    def test_sleep_keeps_the_stream_busy_and_not_the_host(self):
        import time

        torch.npu.synchronize()
        start, before, after = (
            time.monotonic(),
            torch.npu.Event(enable_timing=True),
            torch.npu.Event(enable_timing=True),
        )
        before.record()
        torch.npu._sleep(200_000_000)
        after.record()
        host = time.monotonic() - start
        torch.npu.synchronize()
        self.assertLess(host, 0.15)
        self.assertGreaterEqual(before.elapsed_time(after), 199)
        with self.assertRaisesRegex(ValueError, "must not be negative"):
            torch.npu._sleep(-1)

    def test_attention_switches_and_plan_cache(self):
        from torch.nn.functional import scaled_dot_product_attention as attention

        import torch.backends.npu as backends

        self.assertIs(torch.backends.npu, backends)
        self.assertTrue(backends.is_built() and backends.is_available() and backends.is_flash_attention_available())
        q = torch.randn(2, 3, 8, 16, device=DEVICE)
        expected = attention(q.cpu(), q.cpu(), q.cpu())
        for flash in (True, False):
            before = backends.flash_sdp_enabled()
            backends.enable_flash_sdp(flash)
            try:
                self.assertEqual(backends.flash_sdp_enabled(), flash)
                self.assertEqual(attention(q, q, q).cpu(), expected)
            finally:
                backends.enable_flash_sdp(before)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with backends.sdp_kernel(enable_flash=flash):
                    self.assertEqual(attention(q, q, q).cpu(), expected)
        cache = backends.fft_plan_cache
        cache.max_size = 10
        self.assertEqual((cache.max_size, cache[0].max_size, cache["npu:0"].size), (10, 10, 0))
        cache.clear()
        with self.assertRaisesRegex(RuntimeError, "expected 0 <= device index"):
            cache[torch.npu.device_count()]
        with self.assertRaises(RuntimeError):
            cache.max_size = -1


if __name__ == "__main__":
    run_tests()
