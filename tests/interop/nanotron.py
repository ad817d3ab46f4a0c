"""nanotron.py TOOL SCRATCH: Llamas of other frameworks as Nanotron's.

A run of transformers' Llama, plain, with tied embeddings or under TorchTitan's names, becomes a checkpoint of Nanotron
at several sizes. The files are put together as its loader does it, by each shard's local_global_slices_pairs; its
Llama, written down here from models/llama.py, gives the logits of the model that it was; moments, steps and masters
are those of the optimizer; and torch's LambdaLR with the function of helpers.py, loaded as its trainer loads it, has
the LR of every later update. Nanotron itself needs a GPU. Prints a line per failure, then `N passed, N failed`.
"""

import json
import math
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import torch
import transformers
import yaml
from count import end, expect
from names import titan_names
from safetensors import safe_open

warnings.filterwarnings("ignore")
V, H, L, N, KV, F, S, STEPS, WARM, TOTAL, BATCH = 61, 32, 3, 4, 2, 44, 16, 5, 3, 20, 4
PARTS = {"attn.qkv_proj": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
         "attn.o_proj": ["self_attn.o_proj"], "mlp.gate_up_proj": ["mlp.gate_proj", "mlp.up_proj"],
         "mlp.down_proj": ["mlp.down_proj"], "input_layernorm": ["input_layernorm"],
         "post_attention_layernorm": ["post_attention_layernorm"]}
NAMES = {"model.token_position_embeddings.pp_block.token_embedding.weight": ["model.embed_tokens.weight"],
         "model.final_layer_norm.pp_block.weight": ["model.norm.weight"],
         "model.lm_head.pp_block.weight": ["lm_head.weight"],
         **{f"model.decoder.{i}.pp_block.{a}.weight": [f"model.layers.{i}.{b}.weight" for b in parts]
            for i in range(L) for a, parts in PARTS.items()}}


def trained(tied):
    """The model, and what a script saves of its run."""
    c = transformers.LlamaConfig(
        vocab_size=V, hidden_size=H, num_hidden_layers=L, num_attention_heads=N, num_key_value_heads=KV,
        intermediate_size=F, max_position_embeddings=S, rope_theta=500.0, rms_norm_eps=1e-5, tie_word_embeddings=tied,
        attn_implementation="eager")
    m = transformers.AutoModelForCausalLM.from_config(c).float()
    optimizer = torch.optim.AdamW(m.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
    scheduler = transformers.get_cosine_schedule_with_warmup(optimizer, WARM, TOTAL)
    for _ in range(STEPS):
        x = torch.randint(0, V, (BATCH, S))
        m(input_ids=x, labels=x).loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    names = [n for n, _ in m.named_parameters()]
    states = {n: optimizer.state_dict()["state"][i] for i, n in enumerate(names)}
    return m.eval(), optimizer, scheduler, states


def merged(step, name):
    """A weight and where its shards lie in it, by tensor parallel rank."""
    files = sorted(step.joinpath("model", *name.split(".")[:-1]).glob("model_weight*.safetensors"))
    whole, places = None, {}
    for f in files:
        with safe_open(f, "pt") as h:
            meta, data = h.metadata() or {}, h.get_tensor("data")
        if "unsharded_shape" not in meta:
            return data, None
        side = lambda t: tuple(slice(*(None if v == "None" else int(v) for v in d.split(","))) for d in t.split("|"))
        pairs = [tuple(map(side, p.split("#"))) for p in meta["local_global_slices_pairs"].split(";")]
        if whole is None:
            whole = torch.full(eval(meta["unsharded_shape"]), float("nan"), dtype=data.dtype)
        for local, there in pairs:
            whole[there] = data[local]
        places[int(re.search(r"tp-rank-(\d+)", f.name)[1])] = pairs, data.shape
    return whole, places


def llama(config, w, tokens):
    """models/llama.py: fused projections, rotation of halves or of neighbours."""
    d, rep = H // N, config["num_attention_heads"] // config["num_key_value_heads"]
    norm = lambda x, k: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config["rms_norm_eps"]) * w[k]
    at = torch.arange(tokens.shape[1])[:, None] * config["rope_theta"] ** (-torch.arange(0, d, 2) / d)
    cos, sin = at.cos()[None, :, None], at.sin()[None, :, None]

    def rotate(x):
        a, b = (x[..., ::2], x[..., 1::2]) if config["rope_interleaved"] else x.chunk(2, -1)
        out = a * cos - b * sin, a * sin + b * cos
        return torch.stack(out, -1).flatten(-2) if config["rope_interleaved"] else torch.cat(out, -1)

    x = w["model.token_position_embeddings.pp_block.token_embedding.weight"][tokens]
    for i in range(L):
        p = f"model.decoder.{i}.pp_block."
        h = norm(x, p + "input_layernorm.weight") @ w[p + "attn.qkv_proj.weight"].T
        q, k, v = (t.unflatten(-1, (-1, d)) for t in h.split([N * d, KV * d, KV * d], -1))
        q, k, v = rotate(q), rotate(k).repeat_interleave(rep, 2), v.repeat_interleave(rep, 2)
        o = torch.nn.functional.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
        x = x + o.transpose(1, 2).flatten(-2) @ w[p + "attn.o_proj.weight"].T
        gate, up = (norm(x, p + "post_attention_layernorm.weight") @ w[p + "mlp.gate_up_proj.weight"].T).chunk(2, -1)
        x = x + (torch.nn.functional.silu(gate) * up) @ w[p + "mlp.down_proj.weight"].T
    embedding = w["model.token_position_embeddings.pp_block.token_embedding.weight"]
    return norm(x, "model.final_layer_norm.pp_block.weight") @ w.get("model.lm_head.pp_block.weight", embedding).T


def moments(name, step, places, params, states):
    """Every tensor of the optimizer's files, flat parts of ZeRO-1 one behind the other."""
    parts = {}
    for f in sorted(step.glob("optimizer/*.pt")):
        rank = {k: int(v) for k, v in re.findall(r"_(pp|dp|tp)-(\d+)-of", f.name)}
        o = torch.load(f)
        for i, n in o["names"].items():
            state = dict(o["state"][i])
            if "gradient_accumulator" in o:
                state["master"] = o["gradient_accumulator"][n]
            for slot, t in state.items():
                parts.setdefault((n, slot), {}).setdefault(rank["tp"], {})[rank.get("dp", 0)] = t
    expect(len(parts) >= 3 * len(places), f"{name}: {len(parts)} states")
    for (n, slot), ranks in parts.items():
        if slot == "step":
            ok = all(t.item() == STEPS and t.dtype == torch.float32 for r in ranks.values() for t in r.values())
            expect(ok, f"{name}: {n} {slot}")
            continue
        want = torch.cat([params[x] if slot == "master" else states[x][slot] for x in NAMES[n]])
        flat = {tp: torch.cat([t.flatten() for _, t in sorted(r.items())]) for tp, r in ranks.items()}
        have = torch.zeros(want.shape[0] + want.shape[0] % 2, *want.shape[1:])
        all_of_it = {tp: ([(..., slice(want.shape[0]))], want.shape) for tp in flat}
        for tp, (pairs, shape) in (places[n] or all_of_it).items():
            for local, there in pairs:
                have[there] = flat[tp].view(shape)[local]
        expect(torch.equal(have[:want.shape[0]], want) and not have[want.shape[0]:].any(), f"{name}: {n} {slot}")


def rates(name, step, config, scheduler, optimizer):
    """What the trainer does: group's LR for the initial one, the state, one step; then update after update."""
    k, tokens = config["optimizer"]["learning_rate_scheduler"], config["tokens"]
    o = torch.load(sorted(step.glob("optimizer/*.pt"))[0])
    groups = [dict(g, params=[torch.nn.Parameter(torch.zeros(1))]) for g in o["param_groups"]]
    own = torch.optim.AdamW(groups)
    for a, b in zip(own.param_groups, o["param_groups"]):
        a.update({x: b[x] for x in ("lr", "initial_lr")})
    first = own.param_groups[0]["lr"]
    start = k["lr_decay_starting_step"] if k["lr_decay_starting_step"] is not None else k["lr_warmup_steps"]

    def factor(t):
        if t <= k["lr_warmup_steps"]:
            return t / max(k["lr_warmup_steps"], 1)
        done = min((t - start) / k["lr_decay_steps"], 1)
        return (k["min_decay_lr"] + (first - k["min_decay_lr"]) * (1 + math.cos(math.pi * done)) / 2) / first

    theirs = torch.optim.lr_scheduler.LambdaLR(own, [lambda t: factor(t)] * len(groups))
    theirs.load_state_dict(torch.load(sorted(step.glob("lr_scheduler/*.pt"))[0]))
    theirs.step()
    for t in range(STEPS, TOTAL):
        want, have = scheduler.get_last_lr()[0], own.param_groups[-1]["lr"]
        expect(abs(want - have) <= 1e-12, f"{name}: update {t + 1} has LR {have}, not {want}")
        own.step(), theirs.step(), optimizer.step(), scheduler.step()
    expect(tokens["train_steps"] == TOTAL, f"{name}: train_steps")


def case(scratch, name, tied, sizes, titan=False):
    m, optimizer, scheduler, states = trained(tied)
    params = {n: p.detach().clone() for n, p in m.named_parameters()}
    state = m.state_dict()
    if titan:
        state = titan_names(state, H, N)
    src, out = scratch / f"{name}.pt", scratch / name
    torch.save({"model": state, "step": STEPS} if titan else
               {"model": state, "optimizer": optimizer.state_dict(), "step": STEPS,
                "lr_scheduler": scheduler.state_dict()}, src)
    if not titan:
        m.config.save_pretrained(scratch)
    flags = ["--heads", N] if titan else ["--set", f"batch_size={BATCH}", "--schedule",
                                         f"transformers:cosine,num_warmup_steps={WARM},num_training_steps={TOTAL}"]
    p = subprocess.run([sys.argv[1], "convert", src, out, "--to", "nanotron", *map(str, flags), *map(str, sizes)],
                       capture_output=True, text=True)
    if not expect(p.returncode == 0, f"{name}: {p.stdout}{p.stderr}"):
        return
    step = out / (out / "latest.txt").read_text()
    model = json.loads((step / "model_config.json").read_text())
    config = yaml.safe_load((step / "config.yaml").read_text())
    expect(model == config["model"]["model_config"], f"{name}: model_config.json is not config.yaml's")
    if titan:                                  # nothing tells these
        model.update(rms_norm_eps=1e-5, rope_theta=500.0)
    weights, places = {}, {}
    for n in NAMES:
        if not (tied and "lm_head" in n):
            weights[n], places[n] = merged(step, n)
    x = torch.randint(0, V, (2, S))
    with torch.no_grad():
        want, have = m(x).logits, llama(model, weights, x)[..., :V]
    worst = float((want - have).abs().max())
    expect(worst < 1e-5 * max(1.0, float(want.abs().max())), f"{name}: logits differ by {worst}")
    if not titan:
        moments(name, step, places, params, states)
        rates(name, step, config, scheduler, optimizer)
        meta = json.loads((step / "checkpoint_metadata.json").read_text())["metas"]
        expect(meta["last_train_step"] == STEPS and meta["consumed_train_samples"] == STEPS * BATCH, f"{name}: {meta}")


def main():
    scratch = Path(sys.argv[2])
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    torch.manual_seed(3)
    case(scratch, "one", False, ())
    case(scratch, "tp2-pp2-dp2-zero1", False, ("--tp", 2, "--pp", 2, "--dp", 2, "--zero", 1))
    case(scratch, "tied-tp2-pp3", True, ("--tp", 2, "--pp", 3))
    case(scratch, "tied-zero1", True, ("--dp", 4, "--zero", 1))
    case(scratch, "titan", False, ("--tp", 2), titan=True)
    return end()


sys.exit(main())
