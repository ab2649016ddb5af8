"""Module.to, Module.npu and ``.data =`` between cpu and npu: identity, ties, gradients, optimizers."""

from common_utils import TestCase, run_tests

import torch
from torch import nn


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", torch.full((1,), 2.0))

    def forward(self, index):
        return self.head(self.embedding(index)) * self.scale


class TestModuleTo(TestCase):
    def test_every_way_to_move(self):
        for move in (
            lambda m: m.npu(),
            lambda m: m.npu(0),
            lambda m: m.to("npu"),
            lambda m: m.to("npu:0"),
            lambda m: m.to(torch.device("npu", 0), non_blocking=True),
        ):
            model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
            self.assertIs(move(model), model)
            for value in (*model.parameters(), *model.buffers()):
                self.assertEqual(value.device, torch.device("npu:0"))

    def test_lazy_modules_move_before_they_have_shapes(self):
        for move in (lambda m: m.npu(), lambda m: m.to("npu"), lambda m: m.npu().cpu().npu()):
            for module, shape in ((nn.LazyLinear(3), (2, 5)), (nn.LazyBatchNorm2d(), (2, 4, 3, 3))):
                moved = move(module)
                y = moved(torch.ones(shape, device="npu"))
                self.assertEqual({y.device.type, *(v.device.type for v in moved.state_dict().values())}, {"npu"})
                y.sum().backward()

    def test_parameters_keep_their_identity(self):
        model = nn.Linear(3, 2)
        weight, bias = model.weight, model.bias
        values = weight.detach().clone()
        for device in ("npu", "cpu", "npu:1", "npu:0", "cpu"):
            model.to(device)
            self.assertIs(model.weight, weight)
            self.assertIs(model.bias, bias)
            self.assertEqual(weight.device.type, torch.device(device).type)
            self.assertIsInstance(weight, nn.Parameter)
            self.assertTrue(weight.requires_grad and weight.is_leaf)
            self.assertEqual(weight, values)

    def test_ties_survive(self):
        model = Tied()
        model.to("npu")
        self.assertIs(model.head.weight, model.embedding.weight)
        self.assertEqual(len(list(model.parameters())), 1)
        model(torch.tensor([1, 2], device="npu")).sum().backward()
        model.cpu()
        self.assertIs(model.head.weight, model.embedding.weight)
        self.assertEqual(model.head.weight.grad.device.type, "cpu")

    def test_gradients_move_along(self):
        model = nn.Linear(2, 2)
        model(torch.ones(1, 2)).sum().backward()
        grad, values = model.weight.grad, model.weight.grad.clone()
        model.npu()
        self.assertTrue(model.weight.grad.is_npu)
        self.assertIs(model.weight.grad, grad)
        self.assertEqual(model.weight.grad, values)

    def test_optimizer_made_before_the_move_still_works(self):
        torch.manual_seed(0)
        model, twin = nn.Linear(3, 1), nn.Linear(3, 1)
        twin.load_state_dict(model.state_dict())
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, twin)]
        model.npu()
        for m, optimizer, device in zip((model, twin), optimizers, ("npu", "cpu"), strict=True):
            m(torch.ones(2, 3, device=device)).sum().backward()
            optimizer.step()
        self.assertEqual(model.weight, twin.weight)

    def test_dtype_and_device_at_once(self):
        model = nn.Linear(3, 2).to("npu", torch.float16)
        self.assertEqual((model.weight.dtype, model.weight.device.type), (torch.float16, "npu"))
        model.to("cpu", torch.float32)
        self.assertEqual((model.weight.dtype, model.weight.device.type), (torch.float32, "cpu"))

    def test_there_and_back_is_the_identity(self):
        for model in (nn.Embedding(7, 3), nn.Linear(5, 6), nn.Conv2d(3, 8, 3), nn.LSTM(3, 4), nn.BatchNorm2d(4)):
            before = {name: value.clone() for name, value in model.state_dict().items()}
            model.npu().cpu()
            for name, value in model.state_dict().items():
                self.assertTrue(torch.equal(value, before[name]), name)

    def test_to_empty_and_meta(self):
        with torch.device("meta"):
            model = nn.Linear(3, 2)
        model.to_empty(device="npu")
        self.assertTrue(model.weight.is_npu)

    def test_future_switches_still_work(self):
        model = nn.Linear(3, 2)
        weight = model.weight
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        try:
            model.npu()
        finally:
            torch.__future__.set_overwrite_module_params_on_conversion(False)
        self.assertIsNot(model.weight, weight)
        self.assertTrue(model.weight.is_npu)
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            model = nn.Linear(3, 2)
            weight = model.weight
            model.npu()
        finally:
            torch.__future__.set_swap_module_params_on_conversion(False)
        self.assertIs(model.weight, weight)
        self.assertTrue(model.weight.is_npu)

    def test_packed_sequence(self):
        packed = nn.utils.rnn.pack_sequence([torch.ones(3, 2), torch.ones(1, 2)])
        self.assertFalse(packed.is_npu)
        self.assertTrue(packed.npu().is_npu)


class TestSetData(TestCase):
    def test_parameter_gets_device_data(self):
        parameter = nn.Parameter(torch.ones(2, 3))
        identity = id(parameter)
        parameter.data = torch.full((2, 3), 5.0, device="npu")
        self.assertEqual((id(parameter), parameter.device.type), (identity, "npu"))
        self.assertIsInstance(parameter, nn.Parameter)
        (parameter * 2).sum().backward()
        self.assertTrue(parameter.grad.is_npu)
        self.assertEqual(parameter.grad.cpu(), torch.full((2, 3), 2.0))

    def test_backward_after_a_cpu_backward(self):
        parameter = nn.Parameter(torch.ones(3))
        parameter.sum().backward()
        parameter.grad = None
        parameter.data = parameter.data.npu()
        (parameter * 4).sum().backward()
        self.assertEqual(parameter.grad.device.type, "npu")
        parameter.grad = None
        parameter.data = parameter.data.cpu()
        (parameter * 3).sum().backward()
        self.assertEqual(parameter.grad, torch.full((3,), 3.0))

    def test_between_devices_and_shapes(self):
        value = torch.ones(2, device="npu:0")
        value.data = torch.zeros(4, 5, device="npu:1")
        self.assertEqual((value.shape, value.device), ((4, 5), torch.device("npu:1")))
        value.data = torch.arange(3.0)
        self.assertEqual(value, torch.arange(3.0))

    def test_what_is_not_dense_is_still_refused(self):
        sparse = torch.eye(2).to_sparse()
        with self.assertRaisesRegex(RuntimeError, "incompatible tensor type"):
            torch.ones(2, 2, device="npu").data = sparse


if __name__ == "__main__":
    run_tests()
