"""A small LoRA adapter that stands in for a trained one."""

from pathlib import Path


def write_adapter(base: Path, out: Path, named: str) -> Path:
    """Write random adapter weights for a model, with settings that give `named` as its base."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    settings = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), settings)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.3)
    model.peft_config["default"].base_model_name_or_path = named
    model.save_pretrained(out)
    return out
