"""Processes: what initialises the device, forking before and after it, autoload on and off, a clean exit."""

from common_utils import TestCase, run_in_process, run_tests

FORK = """
import os, sys
def child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except RuntimeError as error:
            os.write(1, str(error).encode())
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


class TestFork(TestCase):
    def run_ok(self, script, **environment):
        result = run_in_process(script, **environment)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout + result.stderr)
        return result.stdout

    def test_queries_do_not_initialise(self):
        self.run_ok(
            FORK
            + """
import torch
assert torch.npu.is_available() and torch.npu.device_count() > 0 and torch.npu.get_device_name()
torch.npu.is_bf16_supported(), torch.accelerator.is_available(), torch.accelerator.device_count()
torch.manual_seed(3), torch.npu.memory_allocated(), torch.npu.empty_cache(), torch.npu.manual_seed_all(11)
assert not torch.npu.is_initialized()
# So a child may use the device, and the parent, too.
work = lambda: torch.ones(2, device="npu").sum().item()
assert child(work) == 0
work()
# What was asked for before runs with the initialisation.
assert torch.npu.is_initialized() and torch.npu.initial_seed() == 11
"""
        )

    def test_fork_after_initialisation(self):
        uses = ('torch.ones(2, device="npu")', "torch.npu.synchronize()", "torch.npu.current_stream()")
        text = self.run_ok(
            FORK
            + f"""
import torch
torch.ones(2, device="npu").sum().item()
assert not torch.npu._is_in_bad_fork()
for use in {uses}:
    assert child(lambda: eval(use)) == 1
torch.ones(2, device="npu").sum().item()

def cpu_only():
    torch.manual_seed(1)
    assert torch.randn(3).add(1).shape == (3,)
    assert torch.npu._is_in_bad_fork() and not torch.npu.is_initialized()

assert child(cpu_only) == 0
"""
        )
        self.assertEqual(text.count("Cannot re-initialize NPU in forked subprocess"), len(uses))
        self.assertEqual(text.count("'spawn'"), len(uses))

    def test_failing_queued_call_says_where(self):
        self.run_ok("""
import torch
def fails(): raise ValueError("from the queue")
torch.npu._lazy_call(fails)
try:
    torch.npu.init()
except torch.npu.DeferredNpuCallError as error:
    assert "from the queue" in str(error) and "originally invoked at" in str(error)
else:
    raise AssertionError("no error")
""")


class TestAutoload(TestCase):
    def test_on(self):
        script = """
import sys, torch
assert torch.device("npu").type == "npu" and hasattr(torch, "npu")
loaded = {n for n in sys.modules if n.startswith("torch.npu.")}
needed = ("_C", "_custom_ops", "_distributed", "_lazy", "_utils", "operators")
assert loaded == {f"torch.npu.{n}" for n in needed}, loaded  # the rest later
with open("/proc/self/maps") as maps:
    assert "libascendcl" not in maps.read()
"""
        result = run_in_process(script)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_off(self):
        script = """
import torch
assert not hasattr(torch, "npu")
try:
    torch.device("npu")
except RuntimeError as error:
    assert "cpu, cuda" in str(error), error
else:
    raise AssertionError("npu is known")
import torch.npu
assert torch.ones(1, device="npu").is_npu
"""
        result = run_in_process(script, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        self.assertEqual((result.returncode, result.stderr), (0, ""))


class TestExit(TestCase):
    def test_exit_is_clean(self):
        prologue = 'import torch\nx = torch.ones(700, 700, device="npu")\nfor _ in range(20): x = x @ x / 700\n'
        for name, script in {
            "queued work of two streams, a pinned copy, a generator": prologue
            + "with torch.npu.Stream(): y = torch.ones(900, 900, device='npu'); y = y @ y\n"
            + "z = torch.ones(1 << 20).pin_memory().to('npu', non_blocking=True); g = torch.Generator('npu')\n",
            "second device only": 'import torch; torch.npu.set_device("npu:1"); torch.ones(3, device="npu").add(1)\n',
            "live thread": prologue
            + "import threading, time\n"
            + "threading.Thread(target=lambda: (x @ x, time.sleep(.1), x + 1)).start()\n",
            "no device used": "import torch\n",
        }.items():
            with self.subTest(name=name):
                result = run_in_process(script)
                self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))

    def test_exception_in_flight(self):
        result = run_in_process('import torch\nx = torch.ones(800, 800, device="npu")\nx @ x\nraise KeyError("mine")')
        self.assertEqual(result.returncode, 1)
        self.assertTrue(result.stderr.strip().endswith("KeyError: 'mine'"), result.stderr)
        self.assertEqual(result.stderr.count("Traceback"), 1)


if __name__ == "__main__":
    run_tests()
