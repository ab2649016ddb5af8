"""Random numbers on npu: seeds, states, generators, fork_rng."""

import warnings

from common_utils import TestCase, run_in_process, run_tests

import torch

OPS = {
    "rand": lambda g: torch.rand(7, device="npu", generator=g),
    "randn": lambda g: torch.randn(7, device="npu", generator=g),
    "randint": lambda g: torch.randint(0, 100, (7,), device="npu", generator=g),
    "randperm": lambda g: torch.randperm(20, device="npu", generator=g),
    "normal": lambda g: torch.empty(7, device="npu").normal_(1.0, 2.0, generator=g),
    "uniform": lambda g: torch.empty(7, device="npu").uniform_(-1, 1, generator=g),
    "bernoulli": lambda g: torch.full((50,), 0.5, device="npu").bernoulli(generator=g),
    "random": lambda g: torch.empty(7, device="npu").random_(0, 1000, generator=g),
    "exponential": lambda g: torch.empty(7, device="npu").exponential_(generator=g),
    "multinomial": lambda g: torch.multinomial(torch.ones(9, device="npu"), 5, generator=g),
}


class TestDefaultGenerator(TestCase):
    def test_manual_seed(self):
        for seed in (torch.manual_seed, torch.npu.manual_seed, torch.npu.manual_seed_all):
            seed(7)
            first = torch.randn(5, device="npu").cpu()
            second = torch.randn(5, device="npu").cpu()
            self.assertNotEqual(first.tolist(), second.tolist())
            seed(7)
            self.assertTrue(torch.equal(torch.randn(5, device="npu").cpu(), first))
            self.assertEqual(torch.npu.initial_seed(), 7)

    def test_devices_have_their_own_stream(self):
        torch.npu.manual_seed_all(3)
        self.assertTrue(torch.equal(torch.randn(4, device="npu:0").cpu(), torch.randn(4, device="npu:1").cpu()))
        with torch.npu.device(1):
            torch.npu.manual_seed(4)
            self.assertEqual(torch.npu.initial_seed(), 4)
        self.assertEqual(torch.npu.initial_seed(), 3)

    def test_seed_differs_each_time(self):
        torch.npu.seed()
        first = torch.npu.initial_seed()
        torch.npu.seed_all()
        self.assertNotEqual(torch.npu.initial_seed(), first)
        self.assertEqual(len({g.initial_seed() for g in torch.npu.default_generators}), 1)

    def test_state(self):
        state = torch.npu.get_rng_state()
        self.assertEqual((state.dtype, state.device.type, tuple(state.shape)), (torch.uint8, "cpu", (16,)))
        first = torch.randn(5, device="npu").cpu()
        torch.npu.set_rng_state(state)
        self.assertTrue(torch.equal(torch.randn(5, device="npu").cpu(), first))
        for device in (1, "npu:1", torch.device("npu:1")):
            state = torch.npu.get_rng_state(device)
            first = torch.rand(3, device="npu:1").cpu()
            torch.npu.set_rng_state(state, device)
            self.assertTrue(torch.equal(torch.rand(3, device="npu:1").cpu(), first))
        states = torch.npu.get_rng_state_all()
        self.assertEqual(len(states), torch.npu.device_count())
        torch.npu.set_rng_state_all(states)

    def test_wrong_states(self):
        with self.assertRaises((RuntimeError, TypeError)):
            torch.npu.set_rng_state(torch.zeros(5, dtype=torch.uint8))
        with self.assertRaises((RuntimeError, TypeError)):
            torch.npu.set_rng_state(torch.zeros(16))
        with self.assertRaises(ValueError):
            torch.npu.get_rng_state("cpu")

    def test_numbers_do_not_depend_on_the_thread_count(self):
        script = 'import torch; torch.manual_seed(1); print(torch.randn(100003, device="npu").double().sum().item())'
        outputs = {run_in_process(script, OMP_NUM_THREADS=n).stdout for n in ("1", "2")}
        self.assertEqual(len(outputs), 1)

    def test_state_set_before_initialisation(self):
        script = """
import torch
state = torch.tensor([5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], dtype=torch.uint8)
torch.npu.set_rng_state(state)
state.zero_()
assert torch.npu.initial_seed() == 5
"""
        result = run_in_process(script)
        self.assertEqual((result.returncode, result.stderr), (0, ""))


class TestGenerator(TestCase):
    def test_every_op_takes_a_generator_of_its_device(self):
        for name, op in OPS.items():
            with self.subTest(op=name):
                generator = torch.Generator(device="npu").manual_seed(11)
                outer = torch.npu.get_rng_state()
                first, second = op(generator).cpu(), op(generator).cpu()
                generator.manual_seed(11)
                self.assertTrue(torch.equal(op(generator).cpu(), first))
                self.assertTrue(torch.equal(op(generator).cpu(), second))
                self.assertTrue(torch.equal(torch.npu.get_rng_state(), outer))
                with self.assertRaisesRegex(RuntimeError, "[Ee]xpected a"):
                    op(torch.Generator())

    def test_attributes(self):
        generator = torch.Generator("npu:1")
        self.assertEqual(generator.device, torch.device("npu:1"))
        generator.manual_seed(2**63 + 5)
        self.assertEqual(generator.initial_seed(), 2**63 + 5)
        self.assertNotEqual(generator.seed(), 2**63 + 5)
        self.assertEqual(torch.Generator("npu").device, torch.device("npu:0"))

    def test_clone_and_state(self):
        generator = torch.Generator("npu").manual_seed(3)
        torch.rand(5, device="npu", generator=generator)
        twin = generator.clone_state()
        expected = torch.rand(5, device="npu", generator=generator).cpu()
        self.assertTrue(torch.equal(torch.rand(5, device="npu", generator=twin).cpu(), expected))
        other = torch.Generator("npu")
        generator.manual_seed(8)
        other.set_state(generator.get_state())
        self.assertTrue(
            torch.equal(
                torch.rand(5, device="npu", generator=other).cpu(),
                torch.rand(5, device="npu", generator=generator).cpu(),
            )
        )

    def test_offset(self):
        generator = torch.npu.default_generators[0]
        torch.npu.manual_seed(1)
        torch.rand(10, device="npu")
        offset = torch.npu._get_rng_state_offset()
        self.assertGreater(offset, 0)
        first = torch.rand(10, device="npu").cpu()
        torch.npu._set_rng_state_offset(offset)
        self.assertTrue(torch.equal(torch.rand(10, device="npu").cpu(), first))
        self.assertGreater(generator.get_offset(), offset)


class TestForkRng(TestCase):
    def test_outer_stream_is_protected(self):
        for options in ({}, {"devices": [0]}, {"device_type": "npu"}, {"devices": [0, 1], "device_type": "npu"}):
            with self.subTest(options=options), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.manual_seed(5)
                before, host = torch.npu.get_rng_state(), torch.get_rng_state()
                with torch.random.fork_rng(**options):
                    torch.manual_seed(99)
                    torch.randn(4, device="npu")
                self.assertTrue(torch.equal(torch.npu.get_rng_state(), before))
                self.assertTrue(torch.equal(torch.get_rng_state(), host))

    def test_host_stream_is_not_touched_by_the_device(self):
        torch.manual_seed(5)
        expected = torch.rand(3)
        torch.manual_seed(5)
        torch.rand(100, device="npu")
        self.assertTrue(torch.equal(torch.rand(3), expected))

    def test_dropout_follows_the_seed(self):
        x = torch.ones(1000, device="npu")
        torch.manual_seed(2)
        first = torch.nn.functional.dropout(x, 0.3).cpu()
        torch.manual_seed(2)
        self.assertTrue(torch.equal(torch.nn.functional.dropout(x, 0.3).cpu(), first))
        self.assertAlmostEqual((first == 0).float().mean().item(), 0.3, delta=0.06)


if __name__ == "__main__":
    run_tests()
