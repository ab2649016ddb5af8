"""`python -m torch.utils.dumper bisect`, the single-operator tests that it writes, and the network check."""

import collections
import contextlib
import importlib
import io
import os
import re
import subprocess
import sys
import textwrap
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from dump_case import ConvNet, DumpCase, calls, seeded, train
from test_names import NETS

import torch

SCRIPT = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.rnn = torch.nn.LSTM(36, 8)

    def forward(self, x):
        x = self.norm(self.conv(x))
        x = torch.relu(x) * 2
        return self.rnn(x.flatten(2))[0]

net = Net().npu()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = net(torch.randn(2, 3, 8, 8).to("npu:0")).pow(2).mean()
    loss.backward()
    optimizer.step()
print("never reached")
"""


# Under the search a recurrent layer is made of matrix products; elsewhere it is one operator.
RECURRENT = "MatMulV2:scale=1.5@1,RecurrentLayer:scale=1.5@1"


class TestBisect(DumpCase):
    def bisect(self, text, *arguments, fault=""):
        (self.folder / "train.py").write_text(textwrap.dedent(text))
        return self.run_python("-m", "torch.utils.dumper", "bisect", "train.py", *arguments, ASCEND_SIM_FAULT=fault)

    def assertReproduced(self, name, fault):
        """The written test passes on a healthy device and fails on the faulty one."""
        self.assertEqual(self.run_python(self.folder / name).returncode, 0)
        done = self.run_python(self.folder / name, ASCEND_SIM_FAULT=fault)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "AssertionError: .*relative distance")

    def test_devices_made_of_type_and_number(self):
        text = SCRIPT.replace('.to("npu:0")', '.type(torch.npu.FloatTensor).to(torch.device("npu", 0))')
        text = text.replace("pow(2)", "pow(torch.npu.FloatTensor([2.0]))")
        done = self.bisect(text)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_nothing_wrong(self):
        done = self.bisect(SCRIPT)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"^\d+ operators of npu compared with cpu: all within tolerance")
        self.assertNotIn("never reached", done.stdout)

    def test_forward(self):
        done = self.bisect(SCRIPT, fault="Relu:scale=1.5@1")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"first operator out of tolerance: /relu/1 \(aten::relu, forward\)")
        self.assertRegex(done.stdout, r"module: \(root\) \(Net\)")
        self.assertRegex(done.stdout, r"source: .*train.py:13")
        self.assertRegex(done.stdout, r"inputs already off: no")
        self.assertReproduced("test_relu_1.py", "Relu:scale=1.5@1")

    def test_backward(self):
        fault = "Conv2DBackpropFilter:scale=1.1@1"
        done = self.bisect(SCRIPT, fault=fault)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"/convolution_backward/1 \(aten::convolution_backward, backward\)")
        self.assertRegex(done.stdout, r"module: conv \(Conv2d\)")
        self.assertRegex(done.stdout, r"source: .*train.py:12")
        self.assertReproduced("test_convolution_backward_1.py", fault)

    def test_inputs_that_are_off_already(self):
        """Data drawn on the device differs from the CPU's: not the operator's fault, and said."""
        drawn = SCRIPT.replace('torch.randn(2, 3, 8, 8).to("npu:0")', 'torch.randn(2, 3, 8, 8, device="npu")')
        done = self.bisect(drawn, fault="Conv2D:scale=1.1@1")
        self.assertRegex(done.stdout, r"/convolution/1 .*\n(.*\n)*  inputs already off: yes: input \(relative")

    def test_inside_of_a_region(self):
        fault = RECURRENT
        done = self.bisect(SCRIPT, fault=fault)
        self.assertRegex(done.stdout, r"first operator out of tolerance: /lstm/1 \(aten::lstm.input, forward\)")
        self.assertRegex(done.stdout, r"module: rnn \(LSTM\)")
        self.assertReproduced("test_lstm_1.py", fault)

    def test_in_a_thread(self):
        """Threads of the script run on the device of the run, and end quietly when the operator is found."""
        text = """
            import threading, torch
            def work():
                torch.relu(torch.ones(3, device="npu"))
                print("not reached on npu")
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            """
        done = self.bisect(text, fault="Relu:scale=1.5@1")
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        self.assertEqual(done.stdout.count("not reached"), 1)
        self.assertIn("first operator out of tolerance: /relu/1 (aten::relu, forward)", done.stdout)

    def test_a_script_that_catches_everything(self):
        """The first operator counts, whatever runs after it."""
        text = """
            import torch
            for function in (torch.relu, torch.tanh):
                try:
                    function(torch.ones(3, device="npu"))
                except BaseException:
                    pass
            """
        done = self.bisect(text, fault="Relu:scale=1.5@1,Tanh:scale=2@1")
        self.assertIn("first operator out of tolerance: /relu/1 (aten::relu, forward)", done.stdout, done.stderr)

    def test_autocast(self):
        text = """
            import torch
            torch.manual_seed(0)
            rnn, x = torch.nn.LSTM(4, 4).npu(), torch.randn(3, 2, 4).npu()
            with torch.autocast("npu", torch.bfloat16):
                y = rnn(x)[0]
            y.float().sum().backward()
            """
        status, out, err = self.in_process(textwrap.dedent(text))
        self.assertEqual(status, 0, out + err)
        fault = RECURRENT
        done = self.bisect(text, fault=fault)
        self.assertRegex(done.stdout, r"first operator out of tolerance: /lstm/1 ")
        self.assertReproduced("test_lstm_1.py", fault)

    def in_process(self, text, *arguments):
        """(exit status, stdout, stderr) of a script that plants no fault."""
        if text is not None:
            (self.folder / "train.py").write_text(text)
        out, err = io.StringIO(), io.StringIO()
        command = ["bisect", str(self.folder / "train.py"), "--out", str(self.folder), *arguments]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = importlib.import_module("torch.utils.dumper._bisect").main(
                importlib.import_module("torch.utils.dumper.__main__").parse(command)
            )
        return status, out.getvalue(), err.getvalue()

    def test_ways_to_get_the_device(self):
        step = "import torch\ndef step(device):\n    torch.relu(torch.ones(3, device=device) - 2)\n"
        argument = "import sys, torch\ntorch.relu(torch.ones(3, device=sys.argv[1]))\n"
        environment = "import os, torch\ntorch.relu(torch.ones(3, device=os.environ['DUMPER_DEVICE']))\n"
        silent = "import torch\ntorch.relu(torch.ones(3))\n"
        cuda = "import torch\ntorch.relu(torch.ones(3).cuda())\ntorch.relu(torch.ones(3, device='cuda:0'))\n"
        for text, arguments in ((step, ()), (argument, ("{device}",)), (environment, ()), (silent, ()), (cuda, ())):
            with self.subTest(text):
                status, out, err = self.in_process(text, *arguments)
                self.assertEqual(status, 0, out + err)
                self.assertRegex(out, r"^\d+ operators of npu compared with cpu")

    def test_refusals(self):
        status, _, err = self.in_process("import torch\ntorch.ones(2) * 2  # npu\n")
        self.assertEqual(status, 2)
        self.assertRegex(err, "no operator of .*train.py ran on npu")
        self.assertRegex(self.in_process(SCRIPT, "--devices", "cpu")[2], "--devices cpu: two devices")

    def test_mistakes_of_the_user(self):
        """Status 2 and one line that says what is wrong; a traceback only of the script's own frames."""
        step = "import torch\ndef step(device):\n    torch.ones(3, device=device) * 2\n"
        for text, arguments, reason in (
            ("import sys\nsys.exit(3)\n", (), "train.py ended with 3 on cpu"),
            ("import sys\nsys.exit('no data')\n", (), "train.py ended with 'no data' on cpu"),
            ("def f(:\n", (), "train.py:1: invalid syntax"),
            ("def step():\n    pass\n", (), r"train.py: step must take the device, step\(device\): too many"),
            (step, ("--devices", "cpu,cpu"), "--devices cpu,cpu: two devices"),
            (step, ("--devices", "cpu,nope"), "--devices cpu,nope: 'nope': Expected one of"),
            (step, ("--devices", "cpu,npu:99"), "--devices cpu,npu:99: 'npu:99': Invalid npu device index 99"),
            (step, ("--out", "/dev/null/x"), "--out /dev/null/x: Not a directory"),
        ):
            status, out, err = self.in_process(text, *arguments)
            self.assertEqual((status, out), (2, ""), err)
            self.assertRegex(err, f"^bisect: .*{reason}")
            self.assertNotIn("Traceback", err)
        status, _, err = self.in_process("import torch\n\nraise ValueError('no data')\n")
        self.assertEqual(status, 2)
        frames = re.findall('File "(.*)", line', err)
        self.assertEqual([os.path.basename(frame) for frame in frames], ["train.py"])
        self.assertTrue(err.endswith("train.py failed on cpu: ValueError: no data\n"), err)
        for option, value in (("--steps", "0"), ("--rtol", "nan"), ("--atol", "-1")):
            parse = importlib.import_module("torch.utils.dumper.__main__").parse
            with self.assertRaises(SystemExit) as exit_, contextlib.redirect_stderr(io.StringIO()) as err:
                parse(["bisect", "train.py", f"{option}={value}"])
            self.assertEqual(exit_.exception.code, 2)
            self.assertIn(f"argument {option}: {value} is not a number from", err.getvalue())

    def test_options_of_the_script(self):
        text = "import sys, torch\nassert sys.argv[1:] == ARGUMENTS, sys.argv\ntorch.ones(3, device='npu') * 2\n"
        for arguments in (["--device", "npu"], ["--step", "1"], ["-x", "--out-dir=a"]):
            status, out, err = self.in_process(text.replace("ARGUMENTS", repr(arguments)), *arguments)
            self.assertEqual(status, 0, out + err)
        status, out, err = self.in_process(text.replace("ARGUMENTS", "['--seed', '5']"), "--", "--seed", "5")
        self.assertEqual(status, 0, out + err)

    def test_encoding_of_the_script(self):
        path = self.folder / "train.py"
        text = "# -*- coding: latin-1 -*-\nimport torch\ns = '\xe9'\ntorch.ones(3, device='npu') * 2\n"
        path.write_bytes(text.encode("latin-1"))
        self.assertEqual(self.in_process(None)[0], 0)
        path.write_bytes(text.encode("latin-1").partition(b"\n")[2])
        status, _, err = self.in_process(None)
        self.assertEqual(status, 2)
        self.assertIn("train.py: cannot be decoded", err)


class TestWrittenTests(DumpCase):
    def test_every_operator_of_a_step(self):
        """A test can be written of each recorded operator, and passes."""
        for name in ("convolutions", "lstm"):
            make, shape = NETS[name]
            model, x = seeded(make), torch.randn(shape)
            _, path = self.dump(lambda m=model, v=x: train(m, v), f"{name}.h5")
            folder = self.folder / name
            folder.mkdir()
            for call in calls(path):
                torch.utils.dumper.write_unittest(path, call, str(folder))
            done = subprocess.run(
                [sys.executable, "-m", "unittest", "discover", "-s", folder, "-p", "test_*.py"],
                capture_output=True,
                text=True,
                cwd=folder,
                timeout=120,
                env=os.environ,
            )
            self.assertEqual(done.returncode, 0, done.stderr[-3000:])
            self.assertIn(f"Ran {len(calls(path))} tests", done.stderr)

    def test_refusals(self):
        _, path = self.dump(lambda: torch.rand(3))
        with self.assertRaisesRegex(RuntimeError, "random"):
            torch.utils.dumper.write_unittest(path, "/rand/1", str(self.folder))
        with self.assertRaisesRegex(RuntimeError, "holds no /exp/9"):
            torch.utils.dumper.write_unittest(path, "/exp/9", str(self.folder))
        with self.assertRaisesRegex(ValueError, "two devices"):
            torch.utils.dumper.write_unittest(path, "/rand/1", str(self.folder), devices="npu")

    def test_numbers_that_have_no_literal(self):
        def work():
            x = torch.randn(3, dtype=torch.complex64)
            torch.mul(x, complex("inf")), torch.clamp(x.real, min=float("-inf")), torch.full((2,), float("nan"))

        _, path = self.dump(work)
        for call in ("/mul/1", "/clamp/1", "/full/1"):
            test = torch.utils.dumper.write_unittest(path, call, str(self.folder))
            done = self.run_python(test)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("Warning", done.stderr)

    def test_imaginary_parts_count(self):
        _, path = self.dump(lambda: torch.ones(3, dtype=torch.complex64) * 1j)
        text = Path(torch.utils.dumper.write_unittest(path, "/mul/1", str(self.folder))).read_text()
        bad = self.folder / "test_bad.py"
        bad.write_text(text.replace('return self.op_exec("npu")', 'return [r.conj() for r in self.op_exec("npu")]'))
        self.assertEqual(self.run_python(bad).returncode, 1)


class Odd(torch.nn.Module):
    """Returns a dict with None, a number and a text in it; works in place."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.act = torch.nn.ReLU(inplace=True)
        self.nothing = Nothing()

    def forward(self, x, scale=1):
        self.nothing(x)
        return {"y": self.act(self.fc(x)) * scale, "none": None, "text": "t", "nested": [(x * 2,), 3]}


class Nothing(torch.nn.Module):
    def forward(self, x):
        return None


class TestNetworkCheck(DumpCase):
    def test_prints_forward_and_backward(self):
        lines = []
        model = Odd()
        with torch.utils.dumper.hook_network(model, lines.append):
            model(torch.randn(2, 4), scale=2)["y"].sum().backward()
        for start in (
            "[forward]: fc inputs[0] float32[2, 4] on cpu mean|x| ",
            "[forward]: Odd outputs['nested'][0][0] float32[2, 4]",
            "[forward]: nothing outputs NoneType None",
            "[backward]: fc grad_outputs float32[2, 4]",
            "[backward]: act grad_inputs[0] float32[2, 4]",
        ):
            self.assertTrue(any(line.startswith(start) for line in lines), (start, lines))
        count = len(lines)
        model(torch.randn(2, 4))
        self.assertEqual(len(lines), count)

    def test_two_devices(self):
        lines = []
        for make, shape in ((Odd, (2, 4)), (ConvNet, (2, 3, 8, 8))):
            rows = torch.utils.dumper.compare_network(seeded(make), torch.randn(shape), report=lines.append)
            self.assertTrue(rows and all(row.passed for row in rows), [str(r) for r in rows if not r.passed])
            self.assertEqual({row.phase for row in rows}, {"forward", "backward", "grad"})
        self.assertRegex(lines[-1], r"\d+ tensors compared on cpu and npu, 0 above 0.0001")

    def test_a_fault(self):
        done = self.script(
            """
            import torch
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
            torch.utils.dumper.compare_network(model, torch.randn(2, 4))
            """,
            ASCEND_SIM_FAULT="Relu:scale=1.5@1",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^\[forward\]: 1 outputs mean\|difference\| .* DIFFERS")

    def test_named_tuples_and_mistakes(self):
        pair = collections.namedtuple("pair", "x scale")

        class Net(torch.nn.Linear):
            def forward(self, given):
                return super().forward(given.x)

        rows = torch.utils.dumper.compare_network(Net(2, 2), pair(torch.ones(1, 2), None), report=None)
        self.assertTrue(rows and all(row.passed for row in rows))
        with self.assertRaisesRegex(ValueError, "two devices"):
            torch.utils.dumper.compare_network(Net(2, 2), pair(torch.ones(1, 2), None), devices=("cpu",))

    def test_tensors_without_values(self):
        class Net(torch.nn.Linear):
            def forward(self, x):
                return super().forward(x), torch.ones(2, device="meta"), torch.ones(2).to_sparse(), torch.ones(1).bool()

        lines, model = [], Net(2, 2)
        with torch.utils.dumper.hook_network(model, lines.append):
            model(torch.ones(1, 2))
        self.assertIn("[forward]: Net outputs[1] float32[2] on meta", lines)
        rows = torch.utils.dumper.compare_network(model, torch.ones(1, 2), report=None)
        self.assertTrue(rows and all(row.passed for row in rows))

    def test_parameters(self):
        lines = []
        model = ConvNet()
        train(model, torch.randn(2, 3, 8, 8))
        model.fc.bias.grad = None
        torch.utils.dumper.parameter_report(model, lines.append)
        self.assertTrue(lines[0].startswith("[BN_buffer]: bn running_mean float32[4]"))
        self.assertIn("[grad]: fc.bias NoneType None", lines)
        self.assertEqual(len(lines), 1 + len(list(model.parameters())))


if __name__ == "__main__":
    unittest.main()
