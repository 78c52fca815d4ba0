"""What make_deepspeed.py and make_fsdp.py share: the model, the text and the
optimizer of a run that tests/lib/named_runs.sh trains on."""
import os

import torch

TEXT = b"1234567890,.-+/("
BEFORE, AFTER, SEQUENCE = 3, 20, 16


def build(kind, vocab, layers, width, **more):
    """A model of gpt2, llama or deepseek, as small as can be, whose vectors are
    not all the same."""
    import transformers
    torch.manual_seed(7)
    common = dict(vocab_size=vocab, bos_token_id=vocab - 1,
                  eos_token_id=vocab - 1, **more)
    if kind == "gpt2":
        config = transformers.GPT2Config(
            n_positions=SEQUENCE, n_embd=16, n_layer=layers, n_head=2,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **common)
        model = transformers.GPT2LMHeadModel(config)
    elif kind == "deepseek":
        config = transformers.DeepseekV3Config(
            hidden_size=16, intermediate_size=width, num_hidden_layers=layers,
            num_attention_heads=2, num_key_value_heads=2, kv_lora_rank=6,
            q_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=2,
            v_head_dim=4, moe_intermediate_size=8, n_routed_experts=4,
            num_experts_per_tok=2, n_group=2, topk_group=1,
            first_k_dense_replace=1, max_position_embeddings=SEQUENCE,
            num_mtp_layers=0, **common)
        model = transformers.DeepseekV3ForCausalLM(config)
    else:
        config = transformers.LlamaConfig(
            hidden_size=16, intermediate_size=width, num_hidden_layers=layers,
            num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=SEQUENCE, rms_norm_eps=1e-5, **common)
        model = transformers.LlamaForCausalLM(config)
    config.architectures = [type(model).__name__]
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            if p.dim() == 1:
                p += 0.01 * torch.sin(torch.arange(p.numel()) + i)
    return config, model


def adam(model):
    """Weight decay for matrices alone, as the Trainer has it."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in trained if p.dim() > 1],
               "weight_decay": 0.01},
              {"params": [p for p in trained if p.dim() == 1],
               "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.999), eps=1e-8)


def loss_of(model):
    ids = torch.tensor([list(TEXT + TEXT[:1])])
    logits = model(ids[:, :-1]).logits
    return torch.nn.functional.cross_entropy(
        logits.float().view(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))


def set_ranks(port, **more):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), **more)


def write_losses(directory, losses):
    with open(directory + "/losses.txt", "w") as f:
        f.writelines(f"{x:.7f}\n" for x in losses)
