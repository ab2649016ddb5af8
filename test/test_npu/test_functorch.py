"""torch.func on npu: vmap, grad, jvp, vjp and their combinations give the CPU's results."""

import copy
import unittest

from torch.func import (
    functional_call,
    functionalize,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

import torch
import torch.npu
from torch import nn

DEVICE = "npu:0"


class FunctorchTestCase(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.x = torch.randn(5, 4)

    def same(self, function, *inputs):
        expected = tree_leaves(function(*inputs))
        actual = tree_leaves(function(*(x.to(DEVICE) for x in inputs)))
        for a, e in zip(actual, expected, strict=True):
            self.assertEqual(a.device, torch.device(DEVICE))
            torch.testing.assert_close(a.cpu(), e, rtol=1e-4, atol=1e-5)


class VmapTest(FunctorchTestCase):
    def test_dimensions(self):
        self.same(vmap(torch.dot), self.x, self.x)
        self.same(vmap(torch.mm, (0, None)), torch.randn(3, 2, 4), torch.randn(4, 5))
        self.same(vmap(lambda x: x + 1, in_dims=1, out_dims=1), self.x)
        self.same(vmap(vmap(lambda x, y: x * y, (None, 0)), (0, None)), self.x, self.x)
        self.same(vmap(torch.exp, chunk_size=2), self.x)

    def test_operators(self):
        functions = {
            "softmax": lambda x: x.softmax(-1),
            "cumsum": lambda x: x.cumsum(0),
            "sort": lambda x: x.sort()[0],
            "where": lambda x: torch.where(x > 0, x, -x),
            "slice and flip": lambda x: x[1:3].flip(0),
            "max": lambda x: x.max(0)[0],
            "layer_norm": lambda x: F.layer_norm(x, (4,)),
            "norm": torch.linalg.norm,
            "gather": lambda x: x.gather(0, torch.tensor([1, 0], device=x.device)),
            "index_select": lambda x: x.index_select(0, torch.tensor([2], device=x.device)),
            "index_put": lambda x: x.clone().index_put((torch.tensor([0], device=x.device),), x[:1]),
            "cat": lambda x: torch.cat([x, x]),
            "one_hot": lambda x: F.one_hot(x.argmax(), 4),
            "pad": lambda x: F.pad(x, (1, 1)),
        }
        for name, function in functions.items():
            with self.subTest(name):
                self.same(vmap(function), self.x)

    def test_in_place(self):
        def function(x):
            y = x.clone()
            y.add_(1).mul_(2)
            y[0] = 3
            return y

        self.same(vmap(function), self.x)

    def test_network_operators(self):
        images, weights = torch.randn(4, 3, 2, 6, 6), torch.randn(3, 2, 3, 3)
        self.same(vmap(F.conv2d, (0, None)), images, weights)
        self.same(vmap(F.conv2d), images, torch.randn(4, 3, 2, 3, 3))
        self.same(vmap(lambda x: F.batch_norm(x, None, None, training=True)), images)
        self.same(vmap(lambda x: F.max_pool2d(x, 2)), images)
        self.same(vmap(lambda x: F.avg_pool2d(x, 2)), images)
        self.same(vmap(lambda x: F.interpolate(x, scale_factor=2)), images)
        self.same(vmap(lambda w, i: F.embedding(i, w), (None, 0)), torch.randn(6, 3), torch.randint(0, 6, (4, 2)))

    def test_attention(self):
        q = torch.randn(3, 1, 2, 4, 8)
        attention = lambda q: F.scaled_dot_product_attention(q, q, q)  # noqa: E731
        self.same(vmap(attention), q)
        self.same(vmap(grad(lambda q: attention(q).sin().sum())), q)

    def test_losses(self):
        self.same(vmap(lambda x: F.cross_entropy(x[None], torch.tensor([1], device=x.device))), self.x)
        self.same(vmap(lambda x: F.binary_cross_entropy_with_logits(x, torch.ones_like(x))), self.x)
        self.same(vmap(grad(lambda x: F.smooth_l1_loss(x, torch.ones_like(x)))), self.x)

    def test_random(self):
        x = self.x.to(DEVICE)
        noise = lambda x: torch.rand(3, device=DEVICE) + 0 * x.sum()  # noqa: E731
        different = vmap(noise, randomness="different")(x).cpu()
        self.assertFalse(torch.equal(different[0], different[1]))
        same = vmap(noise, randomness="same")(x).cpu()
        self.assertTrue(torch.equal(same[0], same[1]))
        self.assertEqual(vmap(F.dropout, randomness="different")(x).shape, x.shape)
        with self.assertRaisesRegex(RuntimeError, "randomness"):
            vmap(torch.rand_like)(x)

    def test_custom_function(self):
        class Double(torch.autograd.Function):
            generate_vmap_rule = True

            @staticmethod
            def forward(x):
                return x * 2

            @staticmethod
            def setup_context(ctx, inputs, output):
                pass

            @staticmethod
            def backward(ctx, grad_output):
                return grad_output * 2

        self.same(vmap(grad(lambda x: Double.apply(x).sum())), self.x)


class DerivativeTest(FunctorchTestCase):
    def test_grad(self):
        self.same(grad(lambda x: (x**3).sum()), self.x)
        self.same(grad(grad(torch.sin)), torch.tensor(0.3))
        self.same(vmap(grad(lambda x: x.tanh().sum())), self.x)

    def test_jvp(self):
        functions = {
            "sin": torch.sin,
            "softmax": lambda x: x.softmax(-1),
            "log_softmax": lambda x: F.log_softmax(x, 1),
            "logsumexp": lambda x: (x @ x.t()).logsumexp(0),
            "gelu": F.gelu,
            "max": lambda x: x.max(1)[0],
            "layer_norm": lambda x: F.layer_norm(x, (4,)),
            "inverse": lambda x: torch.linalg.inv(x[:4] + 3 * torch.eye(4, device=x.device)),
            "mse_loss": lambda x: F.mse_loss(x, x * 2),
            "cumprod": lambda x: x.cumprod(0),
            "atan2": lambda x: torch.atan2(x, x + 1),
        }
        for name, function in functions.items():
            with self.subTest(name):
                self.same(lambda x, f=function: jvp(f, (x,), (torch.ones_like(x),)), self.x)

    def test_jvp_of_convolution(self):
        function = lambda x, w: F.conv2d(x, w, padding=1)  # noqa: E731
        x, w = torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3)
        self.same(lambda x, w: jvp(function, (x, w), (x * 2, w * 3)), x, w)

    def test_jvp_of_attention(self):
        q = torch.randn(1, 2, 4, 8, device=DEVICE)
        attention = lambda q: F.scaled_dot_product_attention(q, q, q)  # noqa: E731
        value, tangent = jvp(attention, (q,), (q,))
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # what the CPU can derive forward
            expected = jvp(attention, (q.cpu(),), (q.cpu(),))
        torch.testing.assert_close(value.cpu(), expected[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(tangent.cpu(), expected[1], rtol=1e-4, atol=1e-5)

    def test_vjp(self):
        def function(x):
            return vjp(lambda y: (y.sin(), y.sum()), x)[1]((torch.ones_like(x), torch.ones((), device=x.device)))

        self.same(function, self.x)

    def test_jacobians(self):
        self.same(jacrev(lambda x: x.softmax(0)), self.x[0])
        self.same(jacfwd(lambda x: x.softmax(0)), self.x[0])
        self.same(hessian(lambda x: (x**4).sum() * x.sum()), self.x[0])
        self.same(lambda x: linearize(torch.sin, x)[1](torch.ones_like(x)), self.x)

    def test_forward_mode_and_batched_gradients(self):
        import torch.autograd.forward_ad as forward_ad

        x = self.x.to(DEVICE)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.ones_like(x))
            tangent = forward_ad.unpack_dual((dual * dual).sum()).tangent
        torch.testing.assert_close(tangent.cpu(), 2 * self.x.sum())
        y = x.clone().requires_grad_()
        (rows,) = torch.autograd.grad(y.sin().sum(1), y, torch.eye(5, device=DEVICE), is_grads_batched=True)
        torch.testing.assert_close(rows.cpu(), torch.diag_embed(torch.ones(5))[..., None] * self.x.cos())
        self.same(lambda x: torch.autograd.functional.hvp(lambda y: (y**3).sum(), x, x), self.x)


class ModelTest(FunctorchTestCase):
    def test_per_sample_gradients(self):
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 3 * 3, 10))
        x, target = torch.randn(6, 1, 8, 8), torch.randint(0, 10, (6,))

        def gradients(model, x, target):
            parameters = {name: p.detach() for name, p in model.named_parameters()}

            def loss(parameters, x, target):
                return F.cross_entropy(functional_call(model, parameters, (x[None],)), target[None])

            return vmap(grad(loss), (None, 0, 0))(parameters, x, target)

        expected = gradients(model, x, target)
        actual = gradients(copy.deepcopy(model).to(DEVICE), x.to(DEVICE), target.to(DEVICE))
        for name, value in expected.items():
            torch.testing.assert_close(actual[name].cpu(), value, rtol=1e-3, atol=1e-5)

    def test_ensemble(self):
        models = [nn.Linear(4, 2).to(DEVICE) for _ in range(3)]
        parameters, buffers = stack_module_state(models)
        base, x = copy.deepcopy(models[0]).to("meta"), self.x.to(DEVICE)
        call = lambda p, b, x: functional_call(base, (p, b), (x,))  # noqa: E731
        results = vmap(call, (0, 0, None))(parameters, buffers, x)
        for result, model in zip(results, models, strict=True):
            torch.testing.assert_close(result.cpu(), model(x).cpu(), rtol=1e-4, atol=1e-5)

    def test_functionalize(self):
        def function(x):
            y = x.clone()
            y.view(-1).add_(1)
            return y

        self.same(functionalize(function), self.x)

    def test_compiled(self):
        compiled = torch.compile(vmap(grad(lambda x: x.sin().sum())), backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(self.x.to(DEVICE)).cpu(), self.x.cos(), rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    unittest.main()
