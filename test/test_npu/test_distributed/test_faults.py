"""What the other ranks are told when one dies, hangs, or calls something else; and wrong use."""

import concurrent.futures
import glob
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import ranks
import torch.distributed as dist
from test_collectives import free_port

import torch


def told(action, *words):
    """Runs `action`; the error that it, or the wait behind it, raises must have all the words."""
    try:
        action()
        torch.npu.synchronize()
    except Exception as error:
        text = str(error)
        missing = [word for word in words if word not in text]
        assert not missing, f"{missing} are not in: {text}"
        return text
    raise AssertionError("nothing was raised")


def other_shape(rank, size):
    x = torch.ones(3 + rank, device="npu")
    told(lambda: dist.all_reduce(x), "ranks do not call the same", "float32[3]", "float32[4]", "ALLREDUCE", "number 1")
    # The group is over, the device is not.
    told(lambda: dist.all_reduce(torch.ones(1, device="npu")), "has failed")
    assert torch.ones(2, device="npu").sum().item() == 2


def other_dtype(rank, size):
    x = torch.ones(3, dtype=torch.float32 if rank else torch.int32, device="npu")
    told(lambda: dist.all_reduce(x), "ranks do not call the same", "float32", "int32", "rank 0", "rank 1")


def other_operation(rank, size):
    x = torch.ones(100_000, device="npu")
    dist.all_reduce(x)
    if rank == 0:
        told(lambda: dist.broadcast(x, 0), "ranks do not call the same", "BROADCAST", "ALLREDUCE", "operation 2")
    else:
        told(lambda: dist.all_reduce(x), "ranks do not call the same", "BROADCAST", "ALLREDUCE", "operation 2")


def dies(rank, size):
    x = torch.ones(100_000, device="npu")
    dist.all_reduce(x)
    torch.npu.synchronize()
    if rank == 1:
        os._exit(7)
    began = time.monotonic()
    told(lambda: dist.all_reduce(x), "rank 1", "has ended", "operation 2", "ALLREDUCE")
    assert time.monotonic() - began < 10


def killed_inside(rank, size, worker):
    """Rank 1 is killed while collectives run, with or without a child, as a loader's worker, that lives on."""
    x = torch.ones(2_000_000, device="npu")
    dist.all_reduce(x)
    torch.npu.synchronize()
    if rank == 1:
        if worker and os.fork() == 0:
            time.sleep(8)
            os._exit(0)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
    began = time.monotonic()

    def many():
        while True:
            dist.all_reduce(x)
            torch.npu.synchronize()

    told(many, "rank 1", "ended", "ALLREDUCE", "float32[2000000]")
    assert time.monotonic() - began < 5


def forked(rank, size):
    """A child that a rank forks has no part in the group, ends as any process, and leaves the group as it is."""
    x = torch.ones(10, device="npu")
    dist.all_reduce(x, async_op=True).wait()
    torch.npu.synchronize()
    unused = dist.new_group()  # without a communicator
    for end in ("returns", "destroys", "aborts"):
        pid = os.fork()
        if pid == 0:
            for group in (None, unused):
                told(lambda group=group: dist.all_reduce(x, group=group), "forked", "spawn")
            if end == "destroys":
                dist.destroy_process_group()
            elif end == "aborts":
                dist.group.WORLD._get_backend(torch.device("npu")).abort()
            sys.exit(11)
        deadline = time.monotonic() + 10
        while (done := os.waitpid(pid, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        if done[0] == 0:
            os.kill(pid, signal.SIGKILL)
        # The code of a rank's own script: see ranks.py, which runs in the child, too.
        assert done[0] == pid and os.waitstatus_to_exitcode(done[1]) == 11, (end, done)
        dist.all_reduce(x)
    assert x.eq(size**4).all().item(), x


def hangs(rank, size):
    x = torch.ones(10, device="npu")
    dist.all_reduce(x)
    torch.npu.synchronize()
    if rank == 1:
        time.sleep(12)
        os._exit(0)
    began = time.monotonic()
    told(lambda: dist.all_reduce(x), "time-out of 3000 ms", "ALLREDUCE", "rank 1")
    assert time.monotonic() - began < 8


def hangs_inside(rank, size):
    x = torch.ones(10, device="npu")
    dist.all_reduce(x)
    torch.npu.synchronize()
    told(lambda: dist.all_reduce(x), "ALLREDUCE")


def fails(rank, size):
    x = torch.ones(10, device="npu")
    told(lambda: dist.all_reduce(x), "fault on demand")


def in_flight(rank, size):
    """Rank 1 stays away from an operation that rank 0 has under way when it aborts the group."""
    x = torch.ones(100_000, device="npu")
    dist.all_reduce(x)
    torch.npu.synchronize()
    group = dist.group.WORLD._get_backend(torch.device("npu"))
    if rank == 0:
        work = dist.all_reduce(x, async_op=True)
        group.abort()
        told(work.wait, "aborted")
    assert torch.ones(2, device="npu").sum().item() == 2


def destroyed_in_flight(rank, size):
    """Groups are destroyed while their operations are queued behind a busy device: none is lost."""
    for _ in range(5):
        group = dist.new_group()
        x = torch.full((300_000,), float(rank + 1), device="npu")
        torch.npu._sleep(20_000_000)
        works = [dist.all_reduce(x, group=group, async_op=True) for _ in range(4)]
        dist.destroy_process_group(group)
        del works
        torch.npu.synchronize()
        assert x.eq(3.0 * size**3).all().item(), x[:3]
    x = torch.ones(300_000, device="npu")
    torch.npu._sleep(20_000_000)
    dist.all_reduce(x, async_op=True)
    dist.destroy_process_group()
    assert x.eq(size).all().item()


def counts_for_itself(rank, size, job):
    """What one of two jobs of the same program computes."""
    x = torch.empty(50_000, device="npu")
    for step in range(60):
        x.fill_(job + step)
        dist.all_reduce(x)
        assert x.eq(size * (job + step)).all().item(), (job, step, x[:3])


def shows_its_exception(rank, size):
    dist.all_reduce(torch.ones(1, device="npu"))
    torch.npu.synchronize()
    if rank == 1:
        raise ValueError("what went wrong here")
    told(lambda: dist.all_reduce(torch.ones(1, device="npu")), "rank 1", "has ended")


def wrong_use(rank, size):
    cpu = torch.ones(3)
    for call, words in (
        (lambda: dist.all_reduce(cpu), ("cpu",)),
        (lambda: dist.all_reduce(torch.ones(4, 4, device="npu")[:, ::2]), ("contiguous",)),
        (lambda: dist.all_gather_into_tensor(torch.ones(3, device="npu"), torch.ones(3, device="npu")), ("2 times",)),
        (lambda: dist.all_to_all_single(torch.ones(3, device="npu"), torch.ones(3, device="npu")), ("divisible",)),
        (lambda: dist.recv(torch.ones(3, device="npu")), ("any source",)),
        (lambda: dist.all_reduce(torch.ones(1, device="npu", dtype=torch.bool), dist.ReduceOp.AVG), ("AVG", "bool")),
        (lambda: dist.broadcast(torch.ones(3, device="npu"), size), ("out of range",)),
        (lambda: dist.send(torch.ones(3, device="npu"), size), ("out of range",)),
    ):
        told(call, *words)
    dist.all_reduce(torch.ones(3, device="npu"))
    other = torch.device("npu", 1 - rank)
    told(lambda: dist.all_reduce(torch.ones(3, device=other)), "uses one device")


def one_device(rank, size):
    torch.npu.set_device(0)
    told(lambda: dist.all_reduce(torch.ones(3, device="npu")), "same device", "ASCEND_SIM_DEVICE_COUNT")


def alone(rank, size):
    """Rank 1 never makes the communicator."""
    if rank == 1:
        time.sleep(6)
        return
    began = time.monotonic()
    told(
        lambda: dist.all_reduce(torch.ones(3, device="npu")),
        "within 1 s (HCCL_CONNECT_TIMEOUT)",
        "missing: 1",
        "firewall",
    )
    assert time.monotonic() - began < 5


def waits_inside(rank, size):
    """The library's own time-out, shorter than the group's."""
    x = torch.ones(10, device="npu")
    dist.all_reduce(x)
    torch.npu.synchronize()
    if rank == 1:
        time.sleep(6)
        os._exit(0)
    told(
        lambda: dist.all_reduce(x),
        "within 1 s (HCCL_EXEC_TIMEOUT)",
        "rank 1",
        "has not come",
        "ALLREDUCE",
        "float32[10]",
    )


def finds_nobody(rank, size, port):
    from datetime import timedelta

    for host, words in (
        ("no-such-host.invalid", ("host not found.", "MASTER_ADDR", "rank 0")),
        ("127.0.0.1", ("connect() timed out.", "firewall", "MASTER_PORT", port)),
    ):
        where = {"init_method": f"tcp://{host}:{port}", "rank": 1, "world_size": 2, "timeout": timedelta(seconds=1)}
        told(lambda where=where: dist.init_process_group("hccl", **where), *words)


def whitelist(rank, size, path):
    told(lambda: dist.all_reduce(torch.ones(3, device="npu")), "HCCL_WHITELIST_FILE")


class TestFaults(unittest.TestCase):
    def tearDown(self):
        self.assertEqual(glob.glob("/dev/shm/*hccl*") + glob.glob("/dev/shm/*ascend*"), [])

    def test_other_shape(self):
        ranks.run(__file__, "other_shape", 2)

    def test_other_dtype(self):
        ranks.run(__file__, "other_dtype", 2)

    def test_other_operation(self):
        ranks.run(__file__, "other_operation", 3)

    def test_rank_dies(self):
        ranks.run(__file__, "dies", 3, codes={1: 7})

    def test_rank_is_killed(self):
        ranks.run(__file__, "killed_inside", 3, False, codes={1: -9})

    def test_rank_of_another_host_is_killed(self):
        """Its connections end with it, though it has a child."""
        env = lambda rank: {"ASCEND_SIM_HOST": f"host{rank}", "HCCL_IF_IP": "127.0.0.1"}  # noqa: E731
        ranks.run(__file__, "killed_inside", 2, True, codes={1: -9}, env=env)

    def test_fork_of_a_rank(self):
        ranks.run(__file__, "forked", 2)

    def test_rank_hangs(self):
        ranks.run(__file__, "hangs", 2, timeout=3)

    def test_fault_on_demand(self):
        ranks.run(__file__, "fails", 2, env=lambda rank: {"ASCEND_SIM_FAULT": "HcclAllReduce:error@1"} if rank else {})

    def test_hang_on_demand(self):
        env = {"ASCEND_SIM_FAULT": "HcclAllReduce:hang@2"}
        ranks.run(__file__, "hangs_inside", 2, timeout=3, env=lambda rank: env if rank else {})

    def test_group_is_aborted_with_an_operation_under_way(self):
        ranks.run(__file__, "in_flight", 2)

    def test_groups_are_destroyed_with_operations_under_way(self):
        ranks.run(__file__, "destroyed_in_flight", 2)

    def test_two_jobs_side_by_side(self):
        with concurrent.futures.ThreadPoolExecutor() as pool:
            jobs = [pool.submit(ranks.run, __file__, "counts_for_itself", 2, 1000 * job) for job in range(2)]
            for job in jobs:
                job.result()

    def test_exception_of_a_rank_is_shown(self):
        with self.assertRaises(ranks.RankError) as caught:
            ranks.run(__file__, "shows_its_exception", 2)
        text = str(caught.exception)
        self.assertIn("[rank1]: ValueError: what went wrong here", text)
        self.assertNotIn("rank 0 ended", text)

    def test_dump_is_read_by_upstreams_tool(self):
        with tempfile.TemporaryDirectory() as folder:
            env = {"TORCH_HCCL_TRACE_BUFFER_SIZE": "20", "TORCH_HCCL_DEBUG_INFO_TEMP_FILE": f"{folder}/trace_"}
            ranks.run(__file__, "other_operation", 2, env=env)
            self.assertEqual(sorted(os.listdir(folder)), ["trace_0", "trace_1"])
            command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", folder, "-p", "trace_"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
            said = done.stdout + done.stderr
            self.assertEqual(done.returncode, 0, said)
            for word in ("all_reduce", "broadcast"):
                self.assertIn(word, said)

    def test_wrong_use(self):
        ranks.run(__file__, "wrong_use", 2)

    def test_one_device_for_two_ranks(self):
        ranks.run(__file__, "one_device", 2)

    def test_store_is_not_found(self):
        ranks.run(__file__, "finds_nobody", 1, free_port(), group=False)

    def test_connect_timeout(self):
        ranks.run(__file__, "alone", 2, env={"HCCL_CONNECT_TIMEOUT": "1"})

    def test_exec_timeout(self):
        ranks.run(__file__, "waits_inside", 2, env={"HCCL_EXEC_TIMEOUT": "1"})

    def test_whitelist(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write('{"host_ip": ["10.9.8.7"], "device_ip": []}')
            file.flush()
            env = {"HCCL_WHITELIST_DISABLE": "0", "HCCL_WHITELIST_FILE": file.name, "HCCL_IF_IP": "127.0.0.1"}
            ranks.run(__file__, "whitelist", 2, file.name, env=env)


if __name__ == "__main__":
    unittest.main()
