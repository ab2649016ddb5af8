"""accelerate: training, its commands, offloading and big-model dispatch on npu."""

import os
import tempfile
from pathlib import Path

os.environ.setdefault("ASCEND_SIM_DEVICE_COUNT", "2")  # models are spread over two

import _offline  # noqa: F401
import accelerate
from processes import command, losses_of
from side_by_side import check, main, train
from tiny import llama, tokens

import torch

TRAINING = """
from accelerate import Accelerator
accelerator = Accelerator(mixed_precision=sys.argv[1])
rows = [dict(input_ids=ids, labels=ids) for step in range(4) for ids in tokens(step % 2, batch=4)]
loader = torch.utils.data.DataLoader(rows, batch_size=4 // accelerator.num_processes)
model = llama("eager")
model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loader)
for batch in loader:
    with accelerator.accumulate(model):
        loss = model(**batch).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    losses = accelerator.gather(loss.detach().reshape(1))
    if accelerator.is_main_process:
        tell(accelerator.device, losses.mean())
"""
SHARDED = ("--use_fsdp", "--fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP", "--fsdp_version")
TWO = ("--num_processes", "2", "--main_process_port")


def launched(device: str, *options: str, precision: str = "no") -> list[float]:
    where = ("--cpu",) if device == "cpu" else ()
    return losses_of(TRAINING, device, ("accelerate.commands.launch", *where, *options), precision)


@check("prepare, backward, clipping")
def one(device):
    model = llama("eager").to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    # One process, one device: `cpu` is settled by the first Accelerator, so both are asked for by hand.
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = accelerate.Accelerator(cpu=device == "cpu")
    assert accelerator.device.type == device
    model, optimizer = accelerator.prepare(model, optimizer)
    losses = []
    for step in range(3):
        ids = tokens(step % 2).to(device)
        loss = model(input_ids=ids, labels=ids).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    return losses


@check("accelerate launch, one device", tolerance=1e-3, slow=True, once=True)
def launch_one(device):
    torch.zeros(1, device=device)  # the work is a process of its own
    return launched(device, "--num_processes", "1")


@check("accelerate launch, two devices (one CPU)", tolerance=1e-3, slow=True, once=True)
def launch_two(device):
    torch.zeros(1, device=device)
    if device == "cpu":
        return launched(device, "--num_processes", "1")
    return launched(device, "--multi_gpu", *TWO, "29611")


@check("accelerate launch, FSDP on two devices (one CPU)", tolerance=1e-3, slow=True, once=True)
def launch_fsdp(device):
    torch.zeros(1, device=device)
    if device == "cpu":
        return launched(device, "--num_processes", "1") * 2
    return [loss for version in ("1", "2") for loss in launched(device, *SHARDED, version, *TWO, "29612")]


@check("accelerate launch, bf16", tolerance=3e-2, slow=True, once=True)
def launch_bf16(device):
    torch.zeros(1, device=device)  # the work is a process of its own
    return launched(device, "--num_processes", "1", precision="bf16")


@check("accelerate env", slow=True, once=True)
def env(device):
    torch.zeros(1, device=device)
    text = command("-m", "accelerate.commands.env")
    assert "`Accelerate` version" in text and "PyTorch accelerator: NPU" in text, text
    return [1.0]


@check("accelerate test, two devices", slow=True, once=True)
def own_test(device):
    torch.zeros(1, device=device)
    if device == "npu":
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "two.yaml"
            file.write_text("compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_NPU\nnum_processes: 2\n")
            text = command("-m", "accelerate.commands.test", "--config_file", str(file))
        assert "Test is a success!" in text, text
    return [1.0]


@check("cpu_offload, dispatch_model over two devices", slow=True)
def big_models(device):
    ids = tokens(0).to(device)
    found = []
    with torch.no_grad():
        if device == "cpu":
            return [llama().eval()(ids).logits] * 2
        offloaded = accelerate.cpu_offload(llama().eval(), execution_device=device)
        found.append(offloaded(ids).logits)
        places = {"model.embed_tokens": 0, "model.layers.0": 0, "model.layers.1": 1, "model.norm": 1}
        places |= {"model.rotary_emb": 0, "lm_head": 1}
        found.append(accelerate.dispatch_model(llama().eval(), places)(ids).logits)
    return found


@check("infer_auto_device_map, load_checkpoint_and_dispatch", slow=True)
def loaded(device):
    ids = tokens(0).to(device)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model = llama().eval()
        model.save_pretrained(folder)
        with accelerate.init_empty_weights():
            empty = llama().eval()
        empty.tie_weights()
        places = {"": device if device == "cpu" else 0}
        if device == "npu":
            whole = sum(p.nbytes for p in model.parameters())
            memory = {0: int(0.7 * whole), 1: 2 * whole, "cpu": 10**7}
            places = accelerate.infer_auto_device_map(empty, memory, no_split_module_classes=["LlamaDecoderLayer"])
            assert len(set(places.values())) > 1, places
        filled = accelerate.load_checkpoint_and_dispatch(empty, f"{folder}/model.safetensors", places)
        return [filled(ids).logits]


@check("a loop by hand with an LLM")
def plain(device):
    ids = tokens(0).to(device)
    return train(llama().to(device), lambda m, _: m(input_ids=ids, labels=ids).loss)


if __name__ == "__main__":
    main("accelerate")
