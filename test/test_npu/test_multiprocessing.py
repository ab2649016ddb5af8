"""npu tensors that are sent to another process: whoever can see the error gets it, and nobody waits forever."""

import pickle

import torch.multiprocessing as mp
from common_utils import TestCase, run_tests

import torch


def put(queue, device):
    queue.put(torch.ones(2, device=device))
    queue.put("after")


def get(queue, answers):
    try:
        answers.put(str(queue.get(timeout=60)))
    except RuntimeError as error:
        answers.put(str(error))
    answers.put(queue.get(timeout=60))


class TestMultiprocessing(TestCase):
    def test_a_child_that_puts(self):
        context = mp.get_context("spawn")
        queue = context.Queue()
        child = context.Process(target=put, args=(queue, "npu"))
        child.start()
        with self.assertRaisesRegex(RuntimeError, "npu tensors cannot be shared with another process; send tensor.cpu"):
            queue.get(timeout=60)
        self.assertEqual(queue.get(timeout=60), "after")
        child.join()
        self.assertEqual(child.exitcode, 0)

    def test_a_child_that_gets(self):
        context = mp.get_context("spawn")
        queue, answers = context.Queue(), context.Queue()
        for value in (torch.ones(2).npu(), [1, {"a": torch.nn.Parameter(torch.ones(2).npu())}]):
            child = context.Process(target=get, args=(queue, answers))
            child.start()
            queue.put(value)
            queue.put("after")
            self.assertIn("npu tensors cannot be shared", answers.get(timeout=60))
            self.assertEqual(answers.get(timeout=60), "after")
            child.join()

    def test_what_is_pickled_at_once_raises_at_once(self):
        context = mp.get_context("spawn")
        here, there = context.Pipe()
        for send in (context.SimpleQueue().put, here.send):
            with self.assertRaisesRegex(RuntimeError, "npu tensors cannot be shared"):
                send(torch.ones(2).npu())
        there.close()
        with self.assertRaisesRegex(RuntimeError, "npu storages cannot be shared"):
            context.SimpleQueue().put(torch.ones(2).npu().untyped_storage())
        # Plain pickle, which copies, is as it was.
        self.assertEqual(pickle.loads(pickle.dumps(torch.ones(2).npu())), torch.ones(2))

    def test_storages_in_a_queue(self):
        queue = mp.get_context("spawn").Queue()
        queue.put(torch.ones(2).npu().untyped_storage())
        with self.assertRaisesRegex(RuntimeError, "npu storages cannot be shared"):
            queue.get(timeout=60)
        queue.put(torch.ones(2))
        self.assertEqual(queue.get(timeout=60), torch.ones(2))


if __name__ == "__main__":
    run_tests()
