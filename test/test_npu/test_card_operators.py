"""A device with those operators only that CANN documents (ASCEND_SIM_OPERATORS=cann), and a CANN that the simulator
stands behind: nothing of the simulator's own is sent to it, what has another composition takes that, the rest runs on
the CPU."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import acl_library as acl
import acl_stub
import yaml

FACTS = yaml.safe_load((acl.ACL / "ir_facts.yaml").read_text())
OWN = {name for group in FACTS["simulator_only"] for name in group["types"]}
MISSING = OWN | set(FACTS["deviations"])


def run(body, **environment):
    """The standard output of a Python program on a strict device."""
    # Other tests of this process may have set what these look at.
    inherited = {name: value for name, value in os.environ.items() if name != "NPU_FALLBACK"}
    done = subprocess.run(
        [sys.executable, "-c", body],
        env={**inherited, "ASCEND_SIM_OPERATORS": "cann", **environment},
        cwd=os.path.dirname(os.path.abspath(__file__)),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)
    return done.stdout


LAUNCH = """
import ctypes, sys
import acl_library as acl
library = acl.Library()
library.check(library.aclInit(None))
library.check(library.aclrtSetDevice(0))
dims = (ctypes.c_int64 * 1)(4)
desc = library.aclCreateTensorDesc(acl.FLOAT, 1, ctypes.addressof(dims), acl.ND)
data = library.aclCreateDataBuffer(library.malloc(16), 16)
stream = library.stream()
descs, buffers = (ctypes.c_void_p * 1)(desc), (ctypes.c_void_p * 1)(data)
def launch(ir):
    attr = library.aclopCreateAttr()
    code = library.aclopCompileAndExecute(
        ir.encode(), 1, ctypes.addressof(descs), ctypes.addressof(buffers), 1, ctypes.addressof(descs),
        ctypes.addressof(buffers), attr, 0, 0, None, stream)
    return code, library.message()
"""


class TestStrictDevice(unittest.TestCase):
    def test_it_has_what_is_documented(self):
        listed = run("import acl_library as acl\nprint(acl.Library().aclsimListOps().decode())")
        types = {line.split("\t")[0] for line in listed.splitlines() if line}
        self.assertEqual(types, set(FACTS["facts"]) - MISSING)

    def test_others_are_refused_as_a_card_does(self):
        found = run(LAUNCH + "print(launch('Abs')[0])\nprint(*launch('Frac'), sep=chr(10))").splitlines()
        self.assertEqual(found[0], "0")
        self.assertEqual(found[1], str(acl.GE_FAILURE))
        self.assertIn("no operator of type 'Frac'", " ".join(found[2:]))

    def test_a_value_that_makes_no_sense(self):
        with self.assertRaisesRegex(AssertionError, "ASCEND_SIM_OPERATORS='some' is refused"):
            run("import torch; torch.ones(2, device='npu')", ASCEND_SIM_OPERATORS="some")


# A little training of everything that a network is made of; prints what fell back, and what differs from the CPU.
TRAINING = """
import copy, torch, torch.npu
from torch import nn
import torch.nn.functional as F

def steps(device, make, data, optimizer):
    torch.manual_seed(0)
    model = make().to(device)
    opt = optimizer(model.parameters())
    for _ in range(3):
        opt.zero_grad()
        loss = model(*(copy.deepcopy(d).to(device) for d in data)).float().square().mean()
        loss.backward()
        opt.step()
    return [loss.detach().cpu()] + [p.detach().cpu() for p in model.parameters()]

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(8, 24)
    def forward(self, x):
        q, k, v = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in self.project(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cell = kind(6, 5, batch_first=True)
    def forward(self, x):
        return self.cell(x)[0]

class Loss(nn.Module):
    def __init__(self, loss, target):
        super().__init__()
        self.loss, self.layer = loss, nn.Linear(8, 4)
        self.register_buffer("target", target)
    def forward(self, x):
        return self.loss(self.layer(x), self.target)

images = torch.linspace(-1, 1, 2 * 3 * 8 * 8).view(2, 3, 8, 8)
rows, sequence = torch.linspace(-2, 2, 24).view(3, 8), torch.linspace(-1, 1, 60).view(2, 5, 6)
words = torch.tensor([[1, 4, 2], [0, 3, 3]])
labels, values = torch.tensor([1, 0, 3]), torch.linspace(0.1, 0.9, 12).view(3, 4)
conv = lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
                             nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(64, 5), nn.LayerNorm(5), nn.GELU())
models = {
    "convolutions": (conv, [images]),
    "attention": (Attention, [torch.linspace(-1, 1, 48).view(2, 3, 8)]),
    "embedding": (lambda: nn.Sequential(nn.Embedding(6, 4), nn.Linear(4, 3)), [words]),
    "lstm": (lambda: Recurrent(nn.LSTM), [sequence]),
    "gru": (lambda: Recurrent(nn.GRU), [sequence]),
    "rnn": (lambda: Recurrent(nn.RNN), [sequence]),
    "cross entropy": (lambda: Loss(F.cross_entropy, labels), [rows]),
    "huber": (lambda: Loss(F.huber_loss, values), [rows]),
    "smooth l1": (lambda: Loss(F.smooth_l1_loss, values), [rows]),
    "mse": (lambda: Loss(F.mse_loss, values), [rows]),
    "bce": (lambda: Loss(F.binary_cross_entropy_with_logits, values), [rows]),
    "kl": (lambda: Loss(lambda x, y: F.kl_div(F.log_softmax(x, -1), y), values), [rows]),
}
sgd = lambda **k: lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True, **k)
adam = lambda **k: lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True, **k)
optimizers = [sgd(foreach=True), sgd(fused=True), adam(foreach=True), adam(fused=True)]
for number, (name, (make, data)) in enumerate(models.items()):
    for optimizer in optimizers if name == "convolutions" else [optimizers[number % 4]]:
        ours, theirs = steps("npu", make, data, optimizer), steps("cpu", make, data, optimizer)
        for a, b in zip(ours, theirs):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4, msg=lambda m: f"{name}: {m}")
dropped = F.dropout(torch.ones(1000, device="npu"), 0.3)
assert 600 < dropped.count_nonzero().item() < 800
scaler = torch.amp.GradScaler("npu")
p = torch.ones(3, device="npu", requires_grad=True)
opt = torch.optim.SGD([p], lr=0.1)
scaler.scale((p * 2).sum()).backward(); scaler.step(opt); scaler.update()
assert torch.allclose(p.detach().cpu(), torch.full((3,), 0.8))
torch.nn.utils.clip_grad_norm_([p], 0.1)
print(dict(torch.npu.fallback_stats()))
"""

# apex at all levels with each fused optimizer, against the plain optimizer: of the CPU in fp32, else of the same level.
MIXED = """
import torch, torch.npu
from torch import nn
from apex import amp, optimizers
import torch.nn.functional as F

pairs = {
    "SGD": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}, "Adam": {"lr": 0.01}, "AdamW": {"lr": 0.01},
    "Adadelta": {"lr": 1.0}, "RMSprop": {"lr": 0.005}, "Lamb": {}, "AdamP": {}, "BertAdam": {"lr": 1e-3},
    "RMSpropTF": {},
}
x, y = torch.linspace(-1, 1, 4 * 3 * 64).view(4, 3, 8, 8).sin(), torch.tensor([0, 1, 2, 1])

def train(device, build, level=None, clip=None, **options):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 3))
    net = net.to(device)
    optimizer = build(net.parameters())
    if level:
        net, optimizer = amp.initialize(net, optimizer, opt_level=level, verbosity=0, **options)
    for _ in range(3):
        loss = F.cross_entropy(net(x.to(device)).float(), y.to(device))
        optimizer.zero_grad()
        if level:
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            if clip:
                optimizer.clip_optimizer_grad_norm_fused(clip)
        else:
            loss.backward()
        optimizer.step()
    if level:
        amp.initialize([], enabled=False)
    return [t.detach().float().cpu() for t in net.state_dict().values()]

for name, options in pairs.items():
    make = getattr(optimizers, "NpuFused" + name)
    plain = getattr(torch.optim, name, None)
    for level in ("O0", "O1", "O2"):
        for scale in (128.0, "dynamic"):
            got = train("npu", lambda p: make(p, **options), level, combine_grad=True, loss_scale=scale, clip=1e6)
            assert all(t.isfinite().all() for t in got), (name, level)
            if plain:
                device, same = ("cpu", {}) if level == "O0" else ("npu", {"level": level, "loss_scale": scale})
                want = train(device, lambda p: plain(p, **options), **same)
                for a, b in zip(got, want):
                    torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-3, msg=lambda m: f"{name} {level}: {m}")
print(dict(torch.npu.fallback_stats()))
"""

NMS = """
import torch, torch.npu, torchvision
torch.manual_seed(0)
corners = torch.rand(200, 2) * 50
boxes, scores = torch.cat([corners, corners + 5 + torch.rand(200, 2) * 20], 1), torch.rand(200)
ours = torchvision.ops.nms(boxes.npu(), scores.npu(), 0.4).cpu()
kept, left = [], scores.argsort(descending=True).tolist()
while left:
    best = left.pop(0)
    kept.append(best)
    overlap = torchvision.ops.box_iou(boxes[best : best + 1], boxes[left])[0] if left else []
    left = [i for i, o in zip(left, overlap) if o <= 0.4]
assert ours.tolist() == kept
"""

# Operators whose IR operator no card has are right, natively where they are composed.
COMPOSED = """
import torch, torch.npu
special = torch.tensor([0.0, -0.0, 1, -1, 2.5, -2.5, float("inf"), -float("inf"), float("nan"), 1e-30, 30.0, -0.9999])
for dtype in (torch.float32, torch.float64):
    x = torch.cat([special, torch.linspace(-8, 8, 65)]).to(dtype)
    y = x.flip(0)
    calls = {f: (lambda t, u, f=f: f(t)) for f in (
        torch.exp2, torch.digamma, torch.i0, torch.special.i1, torch.special.entr, torch.special.log_ndtr,
        torch.special.erfcx, torch.sgn, torch.frac)}
    calls |= {f: (lambda t, u, f=f: f(t, u)) for f in (
        torch.fmax, torch.fmin, torch.hypot, torch.copysign, torch.logaddexp2, torch.logical_xor)}
    calls["polygamma"] = lambda t, u: torch.polygamma(1, t)
    calls["frexp"] = lambda t, u: torch.frexp(torch.nan_to_num(t))
    calls["logcumsumexp"] = lambda t, u: torch.logcumsumexp(t[12:], 0)
    calls["fft"] = lambda t, u: torch.fft.irfft(torch.fft.rfft(t[12:]), 65)
    calls["nanmedian"] = lambda t, u: torch.nanmedian(t)
    calls["resize"] = lambda t, u: torch.nn.functional.interpolate(
        t[13:].view(1, 1, 8, 8), size=(5, 13), mode="bicubic", antialias=True)
    calls["amax"] = lambda t, u: t.clone().scatter_reduce(0, torch.arange(77, device=t.device) // 9, u, "amax")\
        if t.dtype is torch.float32 else t
    for name, call in calls.items():
        ours, theirs = call(x.npu(), y.npu()), call(x, y)
        ours, theirs = [ours, theirs] if isinstance(ours, (tuple, list)) else [[ours], [theirs]]
        for a, b in zip(ours, theirs):
            torch.testing.assert_close(a.cpu(), b, rtol=2e-5, atol=2e-5, equal_nan=True, msg=lambda m: f"{name}: {m}")
print(dict(torch.npu.fallback_stats()))
"""

FALLBACK = """
import torch, torch.npu, warnings
a = torch.eye(3) * 2
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    for _ in range(2):
        assert torch.equal(torch.special.airy_ai(a.npu()).cpu(), torch.special.airy_ai(a))
print(len([w for w in said if "special_airy_ai" in str(w.message)]), dict(torch.npu.fallback_stats()))
"""


class TestOperators(unittest.TestCase):
    def test_training_needs_no_fallback(self):
        self.assertEqual(run(TRAINING, NPU_FALLBACK="0").strip(), "{}")

    def test_mixed_precision_needs_no_fallback(self):
        self.assertEqual(run(MIXED, NPU_FALLBACK="0").strip(), "{}")

    def test_suppression_needs_no_fallback(self):
        run(NMS, NPU_FALLBACK="0")

    def test_compositions_are_right_and_native(self):
        self.assertEqual(run(COMPOSED, NPU_FALLBACK="0").strip(), "{}")

    def test_others_run_on_the_cpu_say_so_once_and_are_counted(self):
        said, _, counted = run(FALLBACK).strip().partition(" ")
        self.assertEqual(said, "1")
        self.assertEqual(counted, "{'aten::special_airy_ai': 2}")

    def test_without_the_cpu_they_are_refused_at_the_call(self):
        with self.assertRaisesRegex(AssertionError, "the device has no IR operator 'AiryAi', and NPU_FALLBACK=0"):
            run(FALLBACK, NPU_FALLBACK="0")


class TestWholeKind(unittest.TestCase):
    """Every place that names an IR operator which no card has."""

    @classmethod
    def setUpClass(cls):
        sys.path.insert(0, str(acl.ROOT / "tools" / "codegen"))
        from npu_entries import load_entries

        cls.kernels = acl.ROOT / "aten" / "src" / "ATen" / "native" / "npu"
        cls.table = load_entries(cls.kernels)

    def test_the_table_knows_them(self):
        self.assertEqual(self.table.missing, MISSING)

    def test_generated_kernels_have_a_way_round(self):
        from npu_emit import emit_kernels

        for op in self.table.ir_ops:
            lacking = [c for c in op.cases if c.ir in MISSING]
            if lacking:
                text = emit_kernels([op], [], MISSING)
                with self.subTest(op.name):
                    self.assertEqual(text.count("OrCpu<"), len(op.functions()))
                    for case in (c for c in lacking if c.composed):
                        self.assertIn(f'if (lacks("{case.ir}")) return put(', text)

    def test_kernels_written_by_hand_have_a_way_round(self):
        """They ask before, or are registered with the CPU behind them."""
        wrapped = {k.symbol for k in self.table.kernels if k.may_lack}
        for path in sorted(self.kernels.rglob("*Kernel.cpp")):
            text = path.read_text()
            for ir in sorted(MISSING.intersection(re.findall(r'"(\w+)"', text))):
                with self.subTest(f"{path.name}: {ir}"):
                    asked = re.search(rf'(lacks|has)\((\w+\.)?"?({ir}|sigma)', text) or "lacks(sigma." in text
                    behind = wrapped.intersection(re.findall(r"\b(\w+)\(", text)) or "register_or_cpu" in text
                    self.assertTrue(asked or behind or ir in ONLY_HERE)


# Of the fork's own operators, for which the CPU has nothing: the call raises.
ONLY_HERE = {"RotatedNmsLimited"}


class TestBehindCann(unittest.TestCase):
    """The host takes the library for CANN: it decides by the table alone."""

    def test_a_card(self):
        if acl_stub.compiler() is None:
            self.skipTest("no C++ compiler")
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            acl_stub.card(home)
            variables = {"ASCEND_SIMULATOR": "off", **acl_stub.environment(home)}
            self.assertEqual(run(COMPOSED, NPU_FALLBACK="0", **variables).strip(), "{}")
            said = run(FALLBACK, **variables)
            self.assertEqual(said.strip(), "1 {'aten::special_airy_ai': 2}")

    def test_dtypes_that_only_the_simulator_refuses_are_let_through(self):
        body = """
import torch
try:
    torch.gcd(torch.ones(2, dtype=torch.uint16, device="npu"), torch.ones(2, dtype=torch.uint16, device="npu"))
    torch.npu.synchronize()
    print("computed")
except Exception as error:
    print(type(error).__name__, str(error)[:400])
"""
        self.assertIn("NotImplementedError", run(body))
        if acl_stub.compiler() is None:
            self.skipTest("no C++ compiler")
        with tempfile.TemporaryDirectory() as folder:
            acl_stub.card(Path(folder))
            told = run(body, ASCEND_SIMULATOR="off", **acl_stub.environment(Path(folder)))
            self.assertIn("failed on device", told)


if __name__ == "__main__":
    unittest.main()
