"""Fused optimizers against the plain ones on the CPU: groups, missing gradients, closures, states, formats."""

import copy
import io
import math
import unittest

import torch
from torch import nn
from torch.npu import optim

# Name -> (fused, plain or reference, options).
PLAIN = {
    "sgd": (optim.NpuFusedSGD, torch.optim.SGD, {"lr": 0.1}),
    "sgd_momentum": (optim.NpuFusedSGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-2}),
    "sgd_dampening": (optim.NpuFusedSGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    "sgd_nesterov": (optim.NpuFusedSGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "adam": (optim.NpuFusedAdam, torch.optim.Adam, {"lr": 1e-2, "weight_decay": 1e-2}),
    "amsgrad": (optim.NpuFusedAdam, torch.optim.Adam, {"lr": 1e-2, "amsgrad": True}),
    "adamw": (optim.NpuFusedAdamW, torch.optim.AdamW, {"lr": 1e-2}),
    "adadelta": (optim.NpuFusedAdadelta, torch.optim.Adadelta, {"lr": 0.5, "weight_decay": 1e-2}),
    "rmsprop": (optim.NpuFusedRMSprop, torch.optim.RMSprop, {"lr": 1e-2, "weight_decay": 1e-2}),
    "rmsprop_all": (
        optim.NpuFusedRMSprop,
        torch.optim.RMSprop,
        {"lr": 1e-2, "momentum": 0.5, "centered": True},
    ),
}


class Reference:
    """An optimizer from its formulas, parameter by parameter in fp64, for those that torch.optim has not."""

    def __init__(self, params, **options):
        self.params, self.options, self.state, self.steps = list(params), options, {}, 0

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self):
        self.steps += 1
        for p in self.params:
            if p.grad is not None:
                p.copy_(self.one(p.double(), p.grad.double(), self.state.setdefault(p, {})))


def moments(state, grad, beta1, beta2):
    m = state["m"] = beta1 * state.get("m", torch.zeros_like(grad)) + (1 - beta1) * grad
    v = state["v"] = beta2 * state.get("v", torch.zeros_like(grad)) + (1 - beta2) * grad * grad
    return m, v


class Lamb(Reference):
    def one(self, p, g, state):
        m, v = moments(state, g, 0.9, 0.999)
        u = m / (v.sqrt() + 1e-6) + self.options.get("weight_decay", 0) * p
        ratio = 1.0
        if not self.options.get("adam") and p.norm() > 0 and u.norm() > 0:
            ratio = min(float(p.norm()), 10.0) / u.norm()
        return p - self.options["lr"] * ratio * u


class BertAdam(Reference):
    def one(self, p, g, state):
        o = self.options
        if o["max_grad_norm"] > 0:
            g = g * min(1.0, o["max_grad_norm"] / (float(g.norm()) + 1e-6))
        m, v = moments(state, g, 0.9, 0.999)
        x = (self.steps - 1) / o["t_total"]
        factor = x / o["warmup"] if x < o["warmup"] else max((x - 1) / (o["warmup"] - 1), 0)
        return p - o["lr"] * factor * (m / (v.sqrt() + 1e-6) + 0.01 * p)


class RMSpropTF(Reference):
    def one(self, p, g, state):
        o = self.options
        if o.get("decoupled_decay"):
            p = p * (1 - o["lr"] * o["weight_decay"])
        else:
            g = g + o.get("weight_decay", 0) * p
        square = state["square"] = 0.9 * state.get("square", torch.ones_like(g)) + 0.1 * g * g
        if o.get("centered"):
            mean = state["mean"] = 0.9 * state.get("mean", torch.zeros_like(g)) + 0.1 * g
            square = square - mean * mean
        root = (square + 1e-10).sqrt()
        if not o.get("momentum"):
            return p - o["lr"] * g / root
        inside = o["lr"] if o.get("lr_in_momentum", True) else 1.0
        buffer = state["buffer"] = o["momentum"] * state.get("buffer", torch.zeros_like(g)) + inside * g / root
        return p - (1.0 if o.get("lr_in_momentum", True) else o["lr"]) * buffer


class AdamP(Reference):
    def one(self, p, g, state):
        o, n = self.options, self.steps
        m, v = moments(state, g, 0.9, 0.999)
        root = v.sqrt() / math.sqrt(1 - 0.999**n) + 1e-8
        u = (0.9 * m + 0.1 * g if o.get("nesterov") else m) / root
        ratio = 1.0
        if p.dim() > 1:
            for rows in (p.size(0), 1):
                w, d, s = p.reshape(rows, -1), g.reshape(rows, -1), u.reshape(rows, -1)
                cosine = (w * d).sum(1) / (w.norm(dim=1) * d.norm(dim=1)).clamp_min(1e-8)
                if cosine.abs().max() < 0.1 / math.sqrt(w.size(1)):
                    unit = w / (w.norm(dim=1, keepdim=True) + 1e-8)
                    u = (s - unit * (unit * s).sum(1, keepdim=True)).view_as(p)
                    ratio = 0.1
                    self.projected = True
                    break
        p = p * (1 - o["lr"] * o.get("weight_decay", 0) * ratio)
        return p - o["lr"] / (1 - 0.9**n) * u


OWN = {
    "lamb": (optim.NpuFusedLamb, Lamb, {"lr": 1e-2, "weight_decay": 1e-2}),
    "lamb_adam": (optim.NpuFusedLamb, Lamb, {"lr": 1e-2, "adam": True}),
    "bert_adam": (
        optim.NpuFusedBertAdam,
        BertAdam,
        {"lr": 1e-2, "warmup": 0.3, "t_total": 20, "max_grad_norm": 0.05},
    ),
    "rmsprop_tf": (optim.NpuFusedRMSpropTF, RMSpropTF, {"lr": 1e-2, "weight_decay": 1e-2}),
    "rmsprop_tf_all": (
        optim.NpuFusedRMSpropTF,
        RMSpropTF,
        {"lr": 1e-2, "momentum": 0.9, "centered": True, "weight_decay": 1e-2, "decoupled_decay": True},
    ),
    "rmsprop_tf_plain_momentum": (
        optim.NpuFusedRMSpropTF,
        RMSpropTF,
        {"lr": 1e-2, "momentum": 0.9, "lr_in_momentum": False},
    ),
    "adamp": (optim.NpuFusedAdamP, AdamP, {"lr": 1e-2, "weight_decay": 1e-2}),
    "adamp_nesterov": (optim.NpuFusedAdamP, AdamP, {"lr": 1e-2, "nesterov": True}),
}


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 5)
    )


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(6, 3, 4, 4, generator=generator), torch.randint(5, (6,), generator=generator)


def gradients(model, step):
    """Gradients of a step from the CPU, the same for both optimizers."""
    reference = net()
    reference.load_state_dict(model)
    images, labels = batch(step)
    nn.functional.cross_entropy(reference(images), labels).backward()
    return [p.grad for p in reference.parameters()]


class TestFusedOptimizers(unittest.TestCase):
    def assertClose(self, model, reference, tolerance=2e-6):
        for (name, p), q in zip(model.named_parameters(), reference.parameters(), strict=True):
            difference = (p.detach().cpu().double() - q.detach().double()).norm() / q.detach().double().norm()
            self.assertLess(float(difference), tolerance, name)

    def pair(self, fused, plain, options, groups=False):
        model, reference = net().npu(), net()
        parts = [
            [{"params": list(m.parameters())[:2]}, {"params": list(m.parameters())[2:], "lr": 3e-3}]
            if groups
            else list(m.parameters())
            for m in (model, reference)
        ]
        return model, reference, fused(parts[0], **options), plain(parts[1], **options)

    def both_step(self, model, reference, fused, plain, step, missing=()):
        fused.zero_grad(set_to_none=step % 2 == 0)
        plain.zero_grad()
        values = gradients({k: v.cpu() for k, v in model.state_dict().items()}, step)
        for i, (p, q, g) in enumerate(zip(model.parameters(), reference.parameters(), values, strict=True)):
            p.grad, q.grad = (None, None) if i in missing else (g.npu(), g.clone())
        fused.step()
        plain.step()

    def test_as_the_plain_ones(self):
        for name, (fused, plain, options) in (PLAIN | OWN).items():
            for groups in (False, True) if name in PLAIN else (False,):
                with self.subTest(name, groups=groups):
                    pair = self.pair(fused, plain, options, groups)
                    for step in range(6):
                        self.both_step(*pair, step)
                    self.assertClose(*pair[:2], tolerance=2e-5 if name in OWN else 2e-6)

    def test_adamp_projects(self):
        """A weight whose gradient is orthogonal to it, by rows and as a whole."""
        torch.manual_seed(0)
        for rows in (4, 1):
            weight = torch.randn(4, 8)
            other = torch.randn(4, 8)
            w, o = weight.view(rows, -1), other.view(rows, -1)
            grad = (o - w * (w * o).sum(1, keepdim=True) / (w * w).sum(1, keepdim=True)).view(4, 8)
            p, q = nn.Parameter(weight.npu()), nn.Parameter(weight.clone())
            p.grad, q.grad = grad.npu(), grad
            options = {"lr": 0.1, "weight_decay": 0.1}
            reference = AdamP([q], **options)
            optim.NpuFusedAdamP([p], **options).step()
            reference.step()
            self.assertTrue(reference.projected)
            torch.testing.assert_close(p.detach().cpu(), q.detach(), rtol=1e-5, atol=1e-6)

    def test_missing_gradients(self):
        """A parameter without a gradient is left alone, and counts its own steps."""
        for name in ("sgd_momentum", "adam", "adamw", "adadelta", "rmsprop_all"):
            with self.subTest(name):
                pair = self.pair(*PLAIN[name])
                for step, missing in enumerate([(1,), (0, 1), (), (2,), (), (0, 1, 2, 3, 4)]):
                    self.both_step(*pair, step, missing)
                self.assertClose(*pair[:2])

    def test_states_go_to_the_plain_one_and_back(self):
        for name in ("sgd_momentum", "amsgrad", "adamw", "adadelta", "rmsprop_all"):
            with self.subTest(name):
                model, reference, fused, plain = self.pair(*PLAIN[name])
                for step in range(3):
                    self.both_step(model, reference, fused, plain, step)
                file = io.BytesIO()
                torch.save(fused.state_dict(), file)
                file.seek(0)
                from_fused = torch.load(file, map_location="cpu", weights_only=True)
                from_plain = copy.deepcopy(plain.state_dict())
                plain.load_state_dict(from_fused)
                fused.load_state_dict(from_plain)
                for step in range(3, 6):
                    self.both_step(model, reference, fused, plain, step)
                self.assertClose(model, reference)
                self.assertEqual(
                    {k: type(v) for k, v in fused.state_dict()["state"][0].items()},
                    {k: type(v) for k, v in plain.state_dict()["state"][0].items()},
                )

    def test_parameters_that_get_other_memory(self):
        """Added groups, `.data`, `.to()`, and steps in between go on as before."""
        for name in ("sgd_momentum", "adam"):
            with self.subTest(name):
                model, reference, fused, plain = self.pair(*PLAIN[name])
                self.both_step(model, reference, fused, plain, 0)
                for p in model.parameters():
                    p.data = p.data.clone()
                self.both_step(model, reference, fused, plain, 1)
                extra, twin = nn.Parameter(torch.ones(3).npu()), nn.Parameter(torch.ones(3))
                fused.add_param_group({"params": [extra]})
                plain.add_param_group({"params": [twin]})
                extra.grad, twin.grad = torch.ones(3).npu(), torch.ones(3)
                self.both_step(model, reference, fused, plain, 2)
                model.cpu().npu()
                self.both_step(model, reference, fused, plain, 3)
                self.assertClose(model, reference)
                torch.testing.assert_close(extra.detach().cpu(), twin.detach())

    def test_channels_last_and_private_formats(self):
        model, reference, fused, plain = self.pair(*PLAIN["adam"])
        model.to(memory_format=torch.channels_last)
        self.both_step(model, reference, fused, plain, 0)
        model[4].weight.data = torch.npu_format_cast(model[4].weight.data, 29)
        self.both_step(model, reference, fused, plain, 1)
        self.both_step(model, reference, fused, plain, 2)
        self.assertTrue(model[0].weight.is_contiguous(memory_format=torch.channels_last))
        self.assertEqual(torch.get_npu_format(model[4].weight), 29)
        self.assertClose(model, reference)

    def test_half_precision(self):
        """Parameters of several dtypes in one group: each dtype is a flat tensor of its own."""
        for dtype in (torch.float16, torch.bfloat16):
            with self.subTest(dtype):
                torch.manual_seed(0)
                values = [torch.randn(4, 3).to(dtype), torch.randn(5)]
                params = [nn.Parameter(v.npu()) for v in values]
                fused = optim.NpuFusedSGD(params, lr=0.5, momentum=0.5)
                want = [v.clone() for v in values]
                for p in params:
                    p.grad = torch.ones_like(p)
                fused.step()
                for p, w in zip(params, want, strict=True):
                    torch.testing.assert_close(p.detach().cpu(), w - 0.5)
                self.assertEqual(len(fused.get_combined_params()), 2)

    def test_few_operators(self):
        """The number of operators of a step does not grow with the number of parameters."""
        for name in ("sgd_momentum", "adamw", "rmsprop_all"):
            counts = []
            for size in (3, 40):
                params = [nn.Parameter(torch.ones(7, device="npu")) for _ in range(size)]
                fused = PLAIN[name][0](params, **PLAIN[name][2])
                for p in params:
                    p.grad = torch.ones_like(p)
                fused.step()
                fused.zero_grad()
                with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as record:
                    fused.step()
                    fused.clip_grad_norm_fused_(1.0)
                    fused.zero_grad()
                counts.append(sum(e.count for e in record.key_averages() if e.key.startswith("aten::")))
            self.assertEqual(counts[0], counts[1], name)

    def test_clip(self):
        for norm_type in (2.0, 1.0, math.inf):
            model, reference, fused, plain = self.pair(*PLAIN["sgd"])
            self.both_step(model, reference, fused, plain, 0)
            params = list(reference.parameters())
            for p, q in zip(model.parameters(), params, strict=True):
                q.grad = torch.randn(q.shape, generator=torch.Generator().manual_seed(q.numel()))
                p.grad = q.grad.npu()
            want = nn.utils.clip_grad_norm_(params, 0.5, norm_type)
            got = optim.npu_fused_clip_grad_norm_(fused, 0.5, norm_type)
            torch.testing.assert_close(got.cpu(), want, rtol=1e-5, atol=0)
            for p, q in zip(model.parameters(), params, strict=True):
                torch.testing.assert_close(p.grad.cpu(), q.grad, rtol=1e-5, atol=1e-8)

    def test_closure_scheduler_scaler_deepcopy(self):
        p = nn.Parameter(torch.ones(3, device="npu"))
        fused = optim.NpuFusedSGD([p], lr=1.0)
        schedule = torch.optim.lr_scheduler.StepLR(fused, 1, gamma=0.5)

        def closure():
            fused.zero_grad()
            loss = p.sum()
            loss.backward()
            return loss

        self.assertEqual(float(fused.step(closure)), 3.0)
        schedule.step()
        fused.step(closure)
        self.assertEqual(p.tolist(), [-0.5] * 3)
        scaler = torch.amp.GradScaler("npu", init_scale=4.0)
        fused.zero_grad()
        scaler.scale(p.sum()).backward()
        scaler.step(fused)
        scaler.update()
        self.assertEqual(p.tolist(), [-1.0] * 3)
        again = copy.deepcopy(fused)
        again.param_groups[0]["params"][0].grad = torch.ones(3, device="npu")
        again.step()
        self.assertEqual(again.param_groups[0]["params"][0].tolist(), [-1.5] * 3)
        self.assertEqual(p.tolist(), [-1.0] * 3)

    def test_refusals(self):
        p = nn.Parameter(torch.ones(3, 2, device="npu"))
        for make, text in (
            (lambda: optim.NpuFusedSGD([p], lr=-1), "learning rate: -1"),
            (lambda: optim.NpuFusedSGD([p], lr=1, nesterov=True), "Nesterov"),
            (lambda: optim.NpuFusedAdam([p], betas=(1.0, 0.9)), "index 0: 1.0"),
            (lambda: optim.NpuFusedAdadelta([p], rho=2), "rho value: 2"),
            (lambda: optim.NpuFusedRMSprop([p], alpha=-1), "alpha value: -1"),
            (lambda: optim.NpuFusedBertAdam([p], lr=1, schedule="none"), "schedule parameter: none"),
            (lambda: optim.NpuFusedSGD([p]), "lr|required"),
        ):
            with self.assertRaisesRegex(ValueError, text):
                make()

    def test_torch_npu_names(self):
        import torch_npu.optim.npu_fused_sgd

        self.assertIs(torch_npu.optim.NpuFusedSGD, optim.NpuFusedSGD)
        self.assertIs(torch_npu.optim.npu_fused_sgd.NpuFusedSGD, optim.NpuFusedSGD)


class TestCombineTensors(unittest.TestCase):
    def test_share_memory(self):
        from torch_npu.utils import combine_tensors as tools

        parts = [torch.ones(2, 3).npu(), torch.full((4,), 2.0).npu(), torch.ones(2, 3, 4, 5).npu().permute(0, 2, 3, 1)]
        flat = tools.npu_combine_tensors(parts)
        self.assertEqual(flat.numel(), 130)
        self.assertTrue(tools.is_combined_tensor_valid(flat, parts))
        flat.mul_(3)
        self.assertEqual(parts[1].tolist(), [6.0] * 4)
        self.assertEqual(parts[2].shape, (2, 4, 5, 3))
        self.assertEqual(tools.get_part_combined_tensor(flat, 6, 4).tolist(), [6.0] * 4)
        parts[1].data = torch.zeros(4, device="npu")
        self.assertFalse(tools.is_combined_tensor_valid(flat, parts))
        self.assertIsNone(tools.npu_combine_tensors([]))
        with self.assertRaisesRegex(RuntimeError, "one dtype on one device"):
            tools.npu_combine_tensors([torch.ones(1).npu(), torch.ones(1)])
        with self.assertRaisesRegex(RuntimeError, "elements 128 to 132 of a tensor that has 130"):
            tools.get_part_combined_tensor(flat, 128, 4)


if __name__ == "__main__":
    unittest.main()
