"""Every collective of the hccl back end, every dtype and reduction, compared with what all ranks' inputs give."""

import os
import random
import unittest

import ranks
import torch.distributed as dist

import torch

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
# Elements: in one post, in slices, and what divides by nothing.
SIZES = (1, 7, 2048, 100_003)


def values(rank, shape, dtype, seed=0):
    """The input of a rank, which every rank can make."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0 if dtype == torch.uint8 else -3, 4, shape, generator=generator).to(dtype)


def expected_sum(size, shape, dtype, seed=0):
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    total = values(0, shape, dtype, seed).to(wide)
    for rank in range(1, size):
        total = total + values(rank, shape, dtype, seed).to(wide)
    return total.to(dtype)


def same(actual, expected, what):
    actual = actual.cpu()
    exact = not (expected.dtype.is_floating_point or expected.dtype.is_complex)
    assert actual.dtype == expected.dtype and actual.shape == expected.shape, (what, actual.dtype, actual.shape)
    if exact or expected.dtype in (torch.float16, torch.bfloat16):
        assert torch.equal(actual, expected), f"{what}: {actual} is not {expected}"
    else:
        torch.testing.assert_close(actual, expected, msg=lambda text: f"{what}: {text}")


def reductions(rank, size):
    for dtype in FLOATS + INTEGERS:
        for n in SIZES:
            x = values(rank, (n,), dtype).npu()
            dist.all_reduce(x)
            same(x, expected_sum(size, (n,), dtype), f"all_reduce {dtype} {n}")
    for op, combine in (
        (dist.ReduceOp.PRODUCT, torch.mul),
        (dist.ReduceOp.MIN, torch.minimum),
        (dist.ReduceOp.MAX, torch.maximum),
    ):
        for dtype in (torch.float32, torch.int64, torch.int8):
            for n in (7, 100_003):
                x = values(rank, (n,), dtype).npu()
                dist.all_reduce(x, op)
                expected = values(0, (n,), dtype)
                for other in range(1, size):
                    expected = combine(expected, values(other, (n,), dtype))
                same(x, expected, f"all_reduce {op} {dtype} {n}")
    for n in (7, 100_003):
        x = values(rank, (n,), torch.float32).npu()
        dist.all_reduce(x, dist.ReduceOp.AVG)
        same(x, expected_sum(size, (n,), torch.float32) / size, "AVG")
        half = torch.full((n,), 60000.0, dtype=torch.float16, device="npu")
        dist.all_reduce(half, dist.ReduceOp.AVG)  # the sum would be infinite
        same(half, torch.full((n,), 60000.0, dtype=torch.float16), "AVG fp16")
        x = values(rank, (n,), torch.float32).npu()
        dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
        same(x, expected_sum(size, (n,), torch.float32) * 0.5, "PREMUL_SUM")
        truth = values(rank, (n,), torch.bool).npu()
        dist.all_reduce(truth)
        same(truth, torch.stack([values(r, (n,), torch.bool) for r in range(size)]).any(0), "bool SUM")
        wave = values(rank, (n,), torch.complex64).npu()
        dist.all_reduce(wave)
        same(wave, expected_sum(size, (n,), torch.complex64), "complex SUM")
        for root in range(size):
            x = values(rank, (n,), torch.float32).npu()
            dist.reduce(x, root)
            if rank == root:
                same(x, expected_sum(size, (n,), torch.float32), "reduce")
            else:
                same(x, values(rank, (n,), torch.float32), "reduce leaves other ranks' tensors")
    # A mean in channels_last memory, whose strides are the same everywhere.
    image = values(rank, (2, 3, 5, 4), torch.float32).npu().to(memory_format=torch.channels_last)
    dist.all_reduce(image)
    same(image, expected_sum(size, (2, 3, 5, 4), torch.float32), "channels_last")
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        try:
            dist.all_reduce(torch.ones(2, dtype=torch.int32, device="npu"), op)
        except ValueError as error:
            assert "Cannot use ReduceOp" in str(error)
        else:
            raise AssertionError(f"{op} was not refused")


def copies(rank, size):
    every = (*FLOATS, *INTEGERS, torch.bool, torch.complex64)
    for dtype in every:
        for n in (3, 50_001):
            mine = values(rank, (n, 2), dtype)
            for root in range(size):
                x = mine.npu()
                dist.broadcast(x, root)
                same(x, values(root, (n, 2), dtype), f"broadcast {dtype}")
            outputs = [torch.empty((n, 2), dtype=dtype, device="npu") for _ in range(size)]
            dist.all_gather(outputs, mine.npu())
            for other in range(size):
                same(outputs[other], values(other, (n, 2), dtype), f"all_gather {dtype}")
            whole = torch.empty((size * n, 2), dtype=dtype, device="npu")
            dist.all_gather_into_tensor(whole, mine.npu())
            same(whole, torch.cat([values(r, (n, 2), dtype) for r in range(size)]), f"all_gather_into {dtype}")
            pieces = torch.cat([values(rank, (n, 2), dtype, seed=piece) for piece in range(size)])
            whole = torch.empty_like(pieces, device="npu")
            dist.all_to_all_single(whole, pieces.npu())
            same(whole, torch.cat([values(r, (n, 2), dtype, seed=rank) for r in range(size)]), f"all_to_all {dtype}")
    for n in (3, 50_001):
        for root in range(size):
            gathered = [torch.empty(n, device="npu") for _ in range(size)] if rank == root else None
            dist.gather(values(rank, (n,), torch.float32).npu(), gathered, root)
            if gathered:
                for other in range(size):
                    same(gathered[other], values(other, (n,), torch.float32), "gather")
            pieces = [values(piece, (n,), torch.float32, seed=root).npu() for piece in range(size)]
            x = torch.empty(n, device="npu")
            dist.scatter(x, pieces if rank == root else None, root)
            same(x, values(rank, (n,), torch.float32, seed=root), "scatter")
        inputs = [values(rank, (n,), torch.float32, seed=piece).npu() for piece in range(size)]
        x = torch.empty(n, device="npu")
        dist.reduce_scatter(x, inputs)
        same(x, expected_sum(size, (n,), torch.float32, seed=rank), "reduce_scatter")
        dist.reduce_scatter_tensor(x, torch.cat(inputs), op=dist.ReduceOp.AVG)
        same(x, expected_sum(size, (n,), torch.float32, seed=rank) / size, "reduce_scatter_tensor")
    dist.barrier()


def borders(rank, size):
    """What travels in a post, in how many parts, and what lies too large for it: elements around each border."""
    for border in (16_384, 131_072, 262_144):
        for n in (border - 1, border, border + 3):
            mine = values(rank, (n,), torch.float32)
            for root in range(size):
                x = mine.npu()
                dist.broadcast(x, root)
                same(x, values(root, (n,), torch.float32), f"broadcast {n}")
                x = mine.npu()
                dist.reduce(x, root)
                if rank == root:
                    same(x, expected_sum(size, (n,), torch.float32), f"reduce {n}")
                pieces = [values(piece, (n,), torch.float32, seed=root).npu() for piece in range(size)]
                x = torch.empty(n, device="npu")
                dist.scatter(x, pieces if rank == root else None, root)
                same(x, values(rank, (n,), torch.float32, seed=root), f"scatter {n}")
            x = mine.npu()
            dist.all_reduce(x)
            same(x, expected_sum(size, (n,), torch.float32), f"all_reduce {n}")
            whole = torch.empty(size * n, device="npu")
            dist.all_gather_into_tensor(whole, mine.npu())
            same(whole, torch.cat([values(r, (n,), torch.float32) for r in range(size)]), f"all_gather {n}")
            pieces = torch.cat([values(rank, (n,), torch.float32, seed=piece) for piece in range(size)])
            dist.all_to_all_single(whole, pieces.npu())
            same(whole, torch.cat([values(r, (n,), torch.float32, seed=rank) for r in range(size)]), f"all_to_all {n}")
            x = torch.empty(n, device="npu")
            dist.reduce_scatter_tensor(x, pieces.npu())
            same(x, expected_sum(size, (n,), torch.float32, seed=rank), f"reduce_scatter {n}")
    # Posted by the thread that calls and taken by it, one behind the other: nobody overtakes what is being written.
    for step in range(60):
        root = step % size
        x = torch.full((200_000 + step,), float(step if rank == root else -1), device="npu")
        dist.broadcast(x, root)
        assert x.eq(step).all().item(), (step, x)


def stored_layouts(rank, size):
    """Results of convolutions, which the simulated device stores channels-last: reduced as they lie if all ranks have
    them so, and put into the host's order where only some do, or where a part of an image is reduced."""
    torch.manual_seed(3)
    weight, images = torch.randn(48, 40, 3, 3), [torch.randn(8, 40, 32, 32) for _ in range(size)]
    expected = [torch.nn.functional.conv2d(image, weight, padding=1) for image in images]
    total = torch.stack(expected).sum(0)
    assert total.nbytes > 1 << 20

    def fresh():
        return torch.nn.functional.conv2d(images[rank].npu(), weight.npu(), padding=1)

    def close(actual, wanted, what):
        torch.testing.assert_close(actual.cpu(), wanted, atol=1e-3, rtol=1e-3, msg=lambda text: f"{what}: {text}")

    for what, plain in (("on all ranks", ()), ("on some ranks", (0,)), ("on none", range(size))):
        for async_op in (False, True):
            x = fresh()
            if rank in plain:
                x = x.cpu().npu()
            work = dist.all_reduce(x, async_op=async_op)
            if async_op:
                work.wait()
            close(x, total, f"stored so {what}")
            close(x + 1, total + 1, f"stored so {what}, used")
    # A bucket: images one behind the other, some of them stored so, copied in and out as DistributedDataParallel does.
    mean = total / size
    bucket = torch.zeros(3 * total.numel() + 10, device="npu")
    views = [bucket[10 + i * total.numel() :][: total.numel()].view(total.shape) for i in range(3)]
    for i, view in enumerate(views):
        torch.mul(fresh() if i != 1 else fresh().cpu().npu(), 1 / size, out=view)
    dist.all_reduce(bucket)
    copies = [torch.empty_like(view) for view in views]
    for copy, view in zip(copies, views, strict=True):
        copy.copy_(view)
    for i in range(3):
        close(copies[i], mean, f"copied out of a bucket, {i}")
        close(views[i], mean, f"view of a bucket, {i}")
        close(views[i].flatten()[7:1007], mean.flatten()[7:1007], "a part")
    # From within an image to within another, all the same on the ranks.
    x = fresh()
    part = x.view(-1)[1000 : 1000 + 400_000]
    dist.all_reduce(part)
    wanted = expected[rank].flatten().clone()
    wanted[1000 : 1000 + 400_000] = total.flatten()[1000 : 1000 + 400_000]
    close(x.flatten(), wanted, "a part of the images")
    x = fresh()
    dist.broadcast(x, 1)
    close(x, expected[1], "broadcast")


def uneven(rank, size):
    lengths = [3 * r + 1 for r in range(size)]
    outputs = [torch.empty(n, device="npu") for n in lengths]
    dist.all_gather(outputs, values(rank, (lengths[rank],), torch.float32).npu())
    for other, n in enumerate(lengths):
        same(outputs[other], values(other, (n,), torch.float32), "uneven all_gather")
    # Rank r sends (r + d) rows to rank d; nothing where that is 0.
    sends, receives = [rank + d for d in range(size)], [r + rank for r in range(size)]
    source = torch.arange(sum(sends) * 3).view(-1, 3).float() + 1000 * rank
    target = torch.empty(sum(receives), 3, device="npu")
    dist.all_to_all_single(target, source.npu(), receives, sends)
    parts = []
    for r in range(size):
        begin = sum(r + d for d in range(rank))
        whole = torch.arange(sum(r + d for d in range(size)) * 3).view(-1, 3).float() + 1000 * r
        parts.append(whole[begin : begin + r + rank])
    same(target, torch.cat(parts), "uneven all_to_all_single")
    inputs = [values(rank, (5 + d,), torch.float32, seed=d).npu() for d in range(size)]
    outputs = [torch.empty(5 + rank, device="npu") for _ in range(size)]
    dist.all_to_all(outputs, inputs)
    for r in range(size):
        same(outputs[r], values(r, (5 + rank,), torch.float32, seed=rank), "uneven all_to_all")
    pieces = [values(rank, (2 + d,), torch.float32, seed=d).npu() for d in range(size)]
    x = torch.empty(2 + rank, device="npu")
    dist.reduce_scatter(x, pieces)
    same(x, expected_sum(size, (2 + rank,), torch.float32, seed=rank), "uneven reduce_scatter")
    empty = torch.empty(0, device="npu")
    dist.all_reduce(empty)
    # In place: the input is a part of the output, the output a part of the input.
    whole = torch.zeros(4 * size, device="npu")
    whole[4 * rank : 4 * rank + 4] = rank + 1
    dist.all_gather_into_tensor(whole, whole[4 * rank : 4 * rank + 4])
    same(whole, torch.arange(1.0, size + 1).repeat_interleave(4), "all_gather in place")
    big = torch.full((50_000 * size,), float(rank + 1), device="npu")
    part = big[50_000 * rank : 50_000 * (rank + 1)]
    dist.reduce_scatter_tensor(part, big)
    same(part, torch.full((50_000,), size * (size + 1) / 2), "reduce_scatter in place")


def messages(rank, size):
    after, before = (rank + 1) % size, (rank - 1) % size
    for n in (3, 200_000):
        mine, x = values(rank, (n,), torch.float32).npu(), torch.empty(n, device="npu")
        if rank < 2:
            # Both send before they receive: each direction has a stream of its own.
            works = [dist.isend(mine, 1 - rank), dist.irecv(x, 1 - rank)]
            for work in works:
                work.wait()
            same(x, values(1 - rank, (n,), torch.float32), "isend, irecv")
        x = torch.empty(n, device="npu")
        batch = [dist.P2POp(dist.isend, mine, after), dist.P2POp(dist.irecv, x, before)]
        batch += [dist.P2POp(dist.isend, mine * 2, before)]
        y = torch.empty(n, device="npu")
        batch += [dist.P2POp(dist.irecv, y, after)]
        for work in dist.batch_isend_irecv(batch):
            work.wait()
        same(x, values(before, (n,), torch.float32), "batch_isend_irecv")
        same(y, values(after, (n,), torch.float32) * 2, "batch_isend_irecv back")
        if rank == 0:
            for other in range(1, size):
                dist.send(mine, other)
        else:
            assert dist.recv(x, 0) == 0
            same(x, values(0, (n,), torch.float32), "send, recv")
    # Several in flight between the same two, in order.
    if rank == 0:
        works = [dist.isend(torch.full((4,), float(i), device="npu"), 1) for i in range(20)]
    elif rank == 1:
        got = [torch.empty(4, device="npu") for _ in range(20)]
        works = [dist.irecv(t, 0) for t in got]
    else:
        works = []
    for work in works:
        work.wait()
    if rank == 1:
        same(torch.stack(got)[:, 0], torch.arange(20.0), "order of messages")


def groups(rank, size):
    work = dist.all_reduce(torch.ones(1000, device="npu"), async_op=True)
    assert work.wait() and work.get_future().wait()[0].sum().item() == 1000 * size
    assert work.is_success() and work.is_completed()
    # Two groups of one half each, and one of all, in flight at once.
    halves = [dist.new_group(list(range(0, size, 2))), dist.new_group(list(range(1, size, 2)))]
    mine, x, y = halves[rank % 2], torch.full((70_000,), float(rank), device="npu"), torch.ones(5, device="npu")
    works = [dist.all_reduce(x, group=mine, async_op=True), dist.all_reduce(y, async_op=True)]
    for work in works:
        work.wait()
    same(x, torch.full((70_000,), float(sum(range(rank % 2, size, 2)))), "sub-group")
    same(y, torch.full((5,), float(size)), "group beside it")
    things = [None] * size
    dist.all_gather_object(things, {"rank": rank, "text": "x" * rank})
    assert [thing["rank"] for thing in things] == list(range(size))
    box = [{"from": rank}]
    dist.broadcast_object_list(box, src=1)
    assert box == [{"from": 1}]
    gathered = [None] * size if rank == 0 else None
    dist.gather_object(rank, gathered, dst=0)
    assert gathered in (None, list(range(size)))
    box = [None]
    dist.scatter_object_list(box, [f"for {r}" for r in range(size)] if rank == 0 else None, src=0)
    assert box == [f"for {rank}"]
    tensors = [torch.full((n,), float(rank), device="npu") for n in (3, 70_000)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for t in tensors:
            dist.all_reduce(t)
    manager.wait()
    for t in tensors:
        same(t, torch.full_like(t, float(sum(range(size))), device="cpu"), "coalesced")
    assert dist.get_backend() == "hccl" and dist.get_backend(mine) == "hccl"
    assert dist.is_backend_available("hccl") and dist.is_hccl_available()
    assert dist.Backend.HCCL == "hccl"
    assert dist.group.WORLD._get_backend(torch.device("npu")).get_hccl_comm_name(rank).startswith("hccl_")
    # Work that runs on another stream: the collective is ordered behind it, and what follows behind the collective.
    side = torch.npu.Stream()
    with torch.npu.stream(side):
        z = torch.zeros(300_000, device="npu")
        for _ in range(50):
            z += 1
        dist.all_reduce(z)
        z *= 2
    side.synchronize()
    same(z, torch.full((300_000,), 100.0 * size), "order of streams")


def streams(rank, size):
    """On the current stream, on the group's and on a third in turn, large and small, behind a busy device: the order
    of the calls is that of the collectives, whoever's stream is late."""
    generator, side = random.Random(7), torch.npu.Stream()
    results = []
    for step in range(120):
        numel, kind = generator.choice((5, 3000, 400_000)), generator.choice(("sync", "async", "side"))
        if generator.random() < 0.1:
            torch.npu._sleep(3_000_000)
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side if kind == "side" else torch.npu.current_stream()):
            x = torch.full((numel,), float(step + rank), device="npu")
            x = x * 2
            results.append((step, x, dist.all_reduce(x, async_op=kind == "async")))
        if kind == "side":
            torch.npu.current_stream().wait_stream(side)
    for step, x, work in results:
        if work is not None:
            work.wait()
        assert x.eq(2.0 * (size * step + size * (size - 1) / 2)).all().item(), (step, x)
    # What follows a collective on its own stream waits for nothing but the stream's order.
    x = torch.ones(4, device="npu")
    torch.npu._sleep(3_000_000)
    dist.all_reduce(x)
    x.mul_(3)
    assert x.tolist() == [3 * size] * 4


def as_of_a_graph(rank, size):
    """npu_hcom_allreduce, of a group by its name."""
    reduce = torch.ops.npu.npu_hcom_allreduce.out
    for group in ("hccl_world_group", dist.group.WORLD.group_name):
        for name, expected in (("sum", size * (size + 1) / 2), ("max", size), ("min", 1)):
            x, y = torch.full((5,), rank + 1.0, device="npu"), torch.empty(0, device="npu")
            reduce(x, name, group, 0, 0, 1.0, 0.0, y, None)
            same(y, torch.full((5,), float(expected)), name)
            same(x, torch.full((5,), rank + 1.0), "the input")
    for wrong in (("mean", "hccl_world_group", 1.0), ("sum", "another", 1.0), ("sum", "hccl_world_group", 2.0)):
        try:
            reduce(x, wrong[0], wrong[1], 0, 0, wrong[2], 0.0, x, None)
        except ValueError as error:
            assert "npu_hcom_allreduce" in str(error)
        else:
            raise AssertionError(f"{wrong} was taken")


def splitting(rank, size):
    dist.init_process_group("hccl", device_id=torch.device("npu", rank))
    ranks_of = [list(range(0, size, 2)), list(range(1, size, 2))]
    group = dist.split_group(split_ranks=ranks_of)
    x = torch.full((10,), float(rank), device="npu")
    dist.all_reduce(x, group=group)
    same(x, torch.full((10,), float(sum(ranks_of[rank % 2]))), "split_group")
    dist.destroy_process_group()


def default_backend(rank, size, next_port):
    dist.init_process_group()
    assert dist.get_backend() == "hccl", dist.get_backend()
    x = torch.ones(3, device="npu")
    dist.all_reduce(x)
    assert x.tolist() == [size] * 3
    try:
        dist.all_reduce(torch.ones(3))
    except RuntimeError as error:
        assert "cpu" in str(error)
    else:
        raise AssertionError("a CPU tensor was taken")
    dist.destroy_process_group()
    # At another port: a rank that is early would meet the first group's store, which is about to close.
    os.environ["MASTER_PORT"] = next_port
    dist.init_process_group("cpu:gloo,npu:hccl")
    for device in ("cpu", "npu"):
        x = torch.ones(3, device=device)
        dist.all_reduce(x)
        assert x.tolist() == [size] * 3
    dist.destroy_process_group()


def direct(rank, size, port):
    store = dist.TCPStore("127.0.0.1", port, size, rank == 0)
    group = dist.ProcessGroupHCCL(store, rank, size)
    x = torch.ones(3, device="npu")
    group.allreduce([x]).wait()
    assert x.tolist() == [size] * 3
    group.shutdown()


def environment(rank):
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1"}


class TestCollectives(unittest.TestCase):
    def test_reductions(self):
        ranks.run(__file__, "reductions", 2)

    def test_reductions_of_three(self):
        ranks.run(__file__, "reductions", 3)

    def test_copies(self):
        ranks.run(__file__, "copies", 3)

    def test_borders(self):
        for size in (2, 3):
            ranks.run(__file__, "borders", size)

    def test_stored_layouts(self):
        ranks.run(__file__, "stored_layouts", 2)

    def test_uneven(self):
        ranks.run(__file__, "uneven", 3)

    def test_messages(self):
        ranks.run(__file__, "messages", 3)

    def test_groups(self):
        ranks.run(__file__, "groups", 4)

    def test_streams(self):
        ranks.run(__file__, "streams", 2)

    def test_npu_hcom_allreduce(self):
        ranks.run(__file__, "as_of_a_graph", 2)

    def test_split_group(self):
        port = free_port()
        ranks.run(
            __file__,
            "splitting",
            4,
            group=False,
            env=lambda rank: environment(rank) | {"MASTER_PORT": port, "WORLD_SIZE": "4"},
        )

    def test_default_backend(self):
        port = free_port()
        ranks.run(
            __file__,
            "default_backend",
            2,
            free_port(),
            group=False,
            env=lambda rank: environment(rank) | {"MASTER_PORT": port, "WORLD_SIZE": "2"},
        )

    def test_group_made_directly(self):
        ranks.run(__file__, "direct", 2, int(free_port()), group=False)

    def test_between_hosts(self):
        """The same over sockets: each rank, or each pair of ranks, on a host of its own."""
        for function, size, hosts in (
            ("reductions", 2, 2),
            ("copies", 4, 2),
            ("uneven", 3, 3),
            ("messages", 3, 2),
            ("groups", 4, 2),
        ):
            with self.subTest(function=function, size=size, hosts=hosts):
                names = [str(rank * hosts // size) for rank in range(size)]
                ranks.run(
                    __file__,
                    function,
                    size,
                    env=lambda rank, names=names: {"ASCEND_SIM_HOST": names[rank], "HCCL_IF_IP": "127.0.0.1"},
                )

    def test_ipv6(self):
        ranks.run(__file__, "uneven", 2, env=lambda rank: {"ASCEND_SIM_HOST": str(rank), "HCCL_IF_IP": "::1"})


def free_port():
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


if __name__ == "__main__":
    unittest.main()
