"""peft: adapters of eight kinds on npu, merged, saved and loaded."""

import tempfile

import _offline  # noqa: F401
import peft
from side_by_side import check, main, train
from tiny import llama, tokens

import torch

TARGETS = ["q_proj", "v_proj"]
CONFIGS = {
    "LoRA": lambda: peft.LoraConfig(r=4, target_modules=TARGETS, task_type="CAUSAL_LM"),
    "DoRA": lambda: peft.LoraConfig(r=4, target_modules=TARGETS, use_dora=True, task_type="CAUSAL_LM"),
    "rank-stabilised LoRA": lambda: peft.LoraConfig(r=4, target_modules=TARGETS, use_rslora=True),
    "IA3": lambda: peft.IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]),
    "LoHa": lambda: peft.LoHaConfig(r=4, target_modules=TARGETS),
    "LoKr": lambda: peft.LoKrConfig(r=4, target_modules=TARGETS),
    "AdaLoRA": lambda: peft.AdaLoraConfig(init_r=6, target_r=4, total_step=20, target_modules=TARGETS),
    "OFT": lambda: peft.OFTConfig(oft_block_size=8, target_modules=TARGETS),
    "VeRA": lambda: peft.VeraConfig(r=8, target_modules=TARGETS),
    "prompt tuning": lambda: peft.PromptTuningConfig(num_virtual_tokens=4, task_type="CAUSAL_LM"),
    "prefix tuning": lambda: peft.PrefixTuningConfig(num_virtual_tokens=4, task_type="CAUSAL_LM"),
}


def adapted(name: str, device: str):
    base = llama()
    torch.manual_seed(1)
    return peft.get_peft_model(base, CONFIGS[name]()).to(device)


def loss_of(model, step: int) -> torch.Tensor:
    ids = tokens(step % 2).to(next(model.parameters()).device)
    return model(input_ids=ids, labels=ids).loss


def register(name: str) -> None:
    @check(f"{name}, training", tolerance=1e-3, slow=name != "LoRA")
    def run(device: str) -> list[float]:
        return train(adapted(name, device), loss_of, lr=1e-2)


for each in CONFIGS:
    register(each)


@check("LoRA: merged, saved, loaded, switched off")
def life(device):
    model = adapted("LoRA", device)
    losses = train(model, loss_of, lr=1e-2)
    ids = tokens(5).to(device)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model.save_pretrained(folder)
        again = peft.PeftModel.from_pretrained(llama().to(device), folder)
        assert {p.device.type for p in again.parameters()} == {device}
        with model.disable_adapter():
            off = model(ids).logits
        return [*losses, off, again.eval()(ids).logits, model.eval().merge_and_unload()(ids).logits]


if __name__ == "__main__":
    main("peft")
