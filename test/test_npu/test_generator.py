"""What test_rng.py leaves out of generators: shared states, positions, the order of draws."""

from common_utils import TestCase, run_tests

import torch


class TestGenerator(TestCase):
    def test_state_is_seed_and_offset(self):
        generator = torch.Generator("npu").manual_seed(5)
        state = generator.get_state()
        self.assertEqual((state.dtype, state.device.type, state.numel()), (torch.uint8, "cpu", 16))
        self.assertEqual(state.view(torch.int64).tolist(), [5, 0])
        torch.rand(10, device="npu", generator=generator)
        moved = generator.get_state().view(torch.int64).tolist()
        self.assertEqual(moved[0], 5)
        self.assertGreater(moved[1], 0)
        self.assertEqual(moved[1] % 4, 0)

    def test_setting_a_state_repeats_the_numbers(self):
        generator = torch.Generator("npu").manual_seed(11)
        torch.rand(3, device="npu", generator=generator)
        state = generator.get_state()
        first = torch.randn(1000, device="npu", generator=generator)
        generator.set_state(state)
        self.assertEqual(torch.randn(1000, device="npu", generator=generator), first)

    def test_a_clone_goes_its_own_way(self):
        generator = torch.Generator("npu").manual_seed(2)
        clone = generator.clone_state()
        first = torch.rand(8, device="npu", generator=generator)
        self.assertEqual(torch.rand(8, device="npu", generator=clone), first)
        torch.rand(8, device="npu", generator=clone)
        self.assertNotEqual(generator.get_state().tolist(), clone.get_state().tolist())

    def test_graphsafe_states_are_shared(self):
        generator, other = torch.Generator("npu").manual_seed(2), torch.Generator("npu").manual_seed(9)
        other.graphsafe_set_state(generator)
        torch.rand(8, device="npu", generator=other)
        self.assertEqual(generator.get_state(), other.get_state())

    def test_devices(self):
        self.assertEqual(torch.Generator("npu:2").device, torch.device("npu:2"))
        self.assertEqual(torch.Generator("npu").device.index, torch.npu.current_device())
        with self.assertRaises(RuntimeError):
            torch.Generator("npu:99")
        with self.assertRaises(RuntimeError):
            torch.rand(3, device="npu", generator=torch.Generator("cpu"))
        with self.assertRaisesRegex(RuntimeError, "Expected a 'cpu' device type for generator but found 'npu'"):
            torch.rand(3, generator=torch.Generator("npu"))

    def test_default_generators(self):
        torch.npu.manual_seed(4)
        self.assertEqual(torch.npu.default_generators[0].initial_seed(), 4)
        first = torch.rand(5, device="npu")
        torch.npu.manual_seed(4)
        self.assertEqual(torch.rand(5, device="npu"), first)
        self.assertEqual(len(torch.npu.default_generators), torch.npu.device_count())


if __name__ == "__main__":
    run_tests()
