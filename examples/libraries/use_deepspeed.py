"""DeepSpeed: ZeRO of each stage on two devices, beside one process on the CPU; offloading, bfloat16, its own Adam.

Installed without building its operators, and without another torch:

    DS_BUILD_OPS=0 DS_ACCELERATOR=cpu pip install --no-deps --no-build-isolation deepspeed==0.19.8
"""

import json
import os

import _offline  # noqa: F401
from processes import losses_of
from side_by_side import check, main

import torch

# DeepSpeed's builder of operators reads this variable without looking whether it is there; any folder will do.
HOME = os.environ.get("ASCEND_HOME_PATH", os.path.dirname(__file__))
ALONE = """
model = llama("eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(4):
    ids = tokens(step % 2, batch=4)
    loss = model(input_ids=ids, labels=ids).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    tell("cpu", loss)
"""
SHARED = """
import json
import deepspeed
deepspeed.init_distributed()
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
deepspeed.get_accelerator().set_device(rank)
given = json.loads(sys.argv[1])
config = {"train_micro_batch_size_per_gpu": 4 // world, "gradient_clipping": 1.0, **given}
model = llama("eager")
optimizer = None if "optimizer" in given else torch.optim.AdamW(model.parameters(), lr=1e-3)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), optimizer=optimizer, config=config)
for step in range(4):
    ids = tokens(step % 2, batch=4).chunk(world)[rank].to(engine.device)
    loss = engine(input_ids=ids, labels=ids).loss
    engine.backward(loss)
    engine.step()
    total = loss.detach().float().clone()
    torch.distributed.all_reduce(total)
    if rank == 0:
        tell(engine.device, total / world)
torch.distributed.destroy_process_group()
"""
TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc_per_node", "2")


def trained(device: str, *configs: dict) -> list[float]:
    """Losses of each configuration on two devices; the CPU's are those of one process that knows no DeepSpeed."""
    torch.zeros(1, device=device)  # the work is a process of its own
    if device == "cpu":
        return losses_of(ALONE, device, ()) * len(configs)
    found = []
    for config in configs:
        told = json.dumps(config)
        found += losses_of(SHARED, device, TORCHRUN, told, ASCEND_HOME_PATH=HOME, ASCEND_SIM_DEVICE_COUNT="2")
    return found


def zero(stage: int, **options) -> dict:
    return {"zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0, **options}}


@check("ZeRO 1, 2 and 3, two devices (one CPU)", tolerance=1e-3, slow=True, once=True)
def stages(device):
    return trained(device, zero(1), zero(2), zero(3))


@check("ZeRO 3, bfloat16, two devices (fp32 on the CPU)", tolerance=3e-2, slow=True, once=True)
def half(device):
    return trained(device, zero(3) | {"bf16": {"enabled": True}})


@check("ZeRO 2, DeepSpeed's own Adam, two devices (torch's on the CPU)", tolerance=1e-3, slow=True, once=True)
def own_adam(device):
    adam = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.01}}}
    return trained(device, zero(2) | adam)


if __name__ == "__main__":
    main("deepspeed")
