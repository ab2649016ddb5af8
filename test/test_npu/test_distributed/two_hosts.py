"""What the ranks of two_hosts.sh run: ten steps a checkpoint after each, compared with those of one CPU process."""

import os
import sys
import time

import torch.distributed as dist
from test_training import batches, losses, make_net, share_of
from torch.nn.parallel import DistributedDataParallel

import torch
from torch import nn


def main(folder):
    rank, local_rank, size = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    torch.npu.set_device(local_rank)
    dist.init_process_group("hccl")
    net = DistributedDataParallel(make_net().npu(), device_ids=[local_rank])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    checkpoint, done, found = os.path.join(folder, "checkpoint.pt"), 0, []
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint, map_location=f"npu:{local_rank}")
        net.module.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        done, found = state["step"], state["losses"]
        print(f"rank {rank} goes on from step {done}", flush=True)
    for step, (images, labels) in enumerate(batches()):
        if step < done:
            continue
        share = share_of(rank, size)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images[share].npu()), labels[share].npu())
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        found.append(mean.item())
        if rank == 0:
            state = {"net": net.module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state | {"step": step + 1, "losses": found}, checkpoint + ".new")
            os.replace(checkpoint + ".new", checkpoint)
            with open(os.path.join(folder, "step"), "w") as file:
                file.write(str(step + 1))
        time.sleep(float(os.environ.get("STEP_SECONDS", 0)))
    expected = losses(make_net(), device="cpu")
    difference = (torch.tensor(found) - expected).abs().max().item()
    print(f"rank {rank} of {size}: losses differ from those of one process by {difference:.2g} at most", flush=True)
    assert difference < 1e-3, (found, expected)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
