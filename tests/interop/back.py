"""back.py TOOL SCRATCH: a script's run becomes another framework's, and a script's again.

A Llama under torch's AdamW, with vectors in a group of their own, and under a scheduler of torch's goes to DeepSpeed,
torchtitan, Megatron-LM, accelerate and Nanotron on several ranks and comes back. The script's own objects load the
result: weights, state, groups and the LR of each coming update are those of the run that was never interrupted, bit for
bit, and so is the model after them. Prints a line per failure, then `N passed, N failed`.
"""

import copy
import re
import shutil
import subprocess
import sys
from pathlib import Path

import torch
import transformers
from count import end, expect

V, S, DONE, MORE = 48, 8, 6, 4
WAYS = {
    "deepspeed": [("--to", "deepspeed", "--dp", 4, "--zero", 3)],
    "torchtitan": [("--to", "torchtitan", "--ranks", 3)],
    "megatron": [("--to", "megatron", "--tp", 2, "--pp", 3, "--heads", 4, "--set", "batch_size=2"),
                 ("--tp", 1, "--pp", 1, "--dp", 2)],
    "accelerate": [("--to", "accelerate", "--dp", 3)],
    "nanotron": [("--to", "nanotron", "--tp", 2, "--dp", 2, "--zero", 1, "--heads", 4, "--set", "batch_size=2")],
}


def schedulers(optimizer):
    t = torch.optim.lr_scheduler
    cosine = t.CosineAnnealingLR
    yield "cosine", lambda: cosine(optimizer, 20, eta_min=1e-4)
    yield "tensor", lambda: t.ConstantLR(optimizer, 1.0)
    yield "linear", lambda: t.LinearLR(optimizer, 1.0, 0.05, 20)
    yield "warm", lambda: t.SequentialLR(optimizer, [t.LinearLR(optimizer, 0.1, 1.0, 3),
                                                     cosine(optimizer, 17, eta_min=1e-4)], [3])


class Run:
    def __init__(self, kind):
        torch.manual_seed(5)
        self.model = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(
            vocab_size=V, hidden_size=16, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=24, tie_word_embeddings=False)).float()
        groups = [{"params": [(n, p) for n, p in self.model.named_parameters() if (p.dim() > 1) == many],
                   "weight_decay": decay} for many, decay in ((True, 0.1), (False, 0.0))]
        lr = torch.tensor(1e-2) if kind == "tensor" else 1e-2
        self.optimizer = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))
        self.scheduler = dict(schedulers(self.optimizer))[kind]()
        self.batches = torch.randint(0, V, (DONE + MORE, 2, S))

    def go(self, first, end):
        for tokens in self.batches[first:end]:
            logits = self.model(tokens).logits[:, :-1].reshape(-1, V)
            torch.nn.functional.cross_entropy(logits, tokens[:, 1:].reshape(-1)).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.scheduler.step()
            yield [float(g["lr"]) for g in self.optimizer.param_groups]

    def state(self):
        return copy.deepcopy({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                              "lr_scheduler": self.scheduler.state_dict(), "step": DONE, "epoch": 2})


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def convert(*args):
    p = subprocess.run([sys.argv[1], "convert", *map(str, args)], capture_output=True, text=True)
    return expect(p.returncode == 0, f"{args}: {p.stdout}{p.stderr}")


def case(scratch, kind, way):
    name = f"{kind}-{way}"
    whole = Run(kind)
    list(whole.go(0, DONE))
    want, src = whole.state(), scratch / f"{name}.pt"
    torch.save(want, src)
    coming = list(whole.go(DONE, DONE + MORE))
    for i, args in enumerate(WAYS[way]):
        out = scratch / f"{name}-{i}"
        if not convert(src, out, *args):
            return
        src = out
    if not convert(src, scratch / f"{name}-back.pt", "--to", "torch"):
        return
    have = torch.load(scratch / f"{name}-back.pt", weights_only=True)
    expect(have.get("step") == DONE and have.get("epoch") == 2, f"{name}: {have.get('step')}, {have.get('epoch')}")
    again = Run(kind)
    again.model.load_state_dict(have["model"], strict=True)
    again.optimizer.load_state_dict(have["optimizer"])
    again.scheduler.load_state_dict(have["lr_scheduler"])
    now = again.state()
    for part in ("model", "optimizer"):
        expect(same(want[part], now[part]), f"{name}: another {part}")
    expect(list(again.go(DONE, DONE + MORE)) == coming, f"{name}: other LRs")
    expect(same(whole.state()["model"], again.state()["model"]), f"{name}: another model after {MORE} updates")


def printed(scratch, kind):
    """The scheduler that is printed for Lightning is the one that the script has made."""
    whole = Run(kind)
    list(whole.go(0, DONE))
    state, src, out = whole.state(), scratch / f"{kind}-printed.pt", scratch / f"{kind}-printed.py"
    torch.save(state, src)
    coming = list(whole.go(DONE, DONE + MORE))
    if not convert(src, scratch / f"{kind}-printed", "--to", "lightning", "--settings", out):
        return
    text = out.read_text()
    call = text[re.search(r"torch\.optim\.lr_scheduler\.\w+\(", text).start():]
    ends = [i + 1 for i, c in enumerate(call) if c == ")" and call[:i + 1].count("(") == call[:i + 1].count(")")]
    again = Run(kind)
    again.model.load_state_dict(state["model"])
    again.optimizer.load_state_dict(state["optimizer"])
    again.scheduler = eval(call[:ends[0]], {"torch": torch, "optimizer": again.optimizer})
    again.scheduler.load_state_dict(state["lr_scheduler"])
    again.optimizer.load_state_dict(state["optimizer"])
    expect(list(again.go(DONE, DONE + MORE)) == coming, f"{kind}: other LRs with {call[:ends[0]]}")


def main():
    scratch = Path(sys.argv[2])
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    for kind in ("cosine", "linear", "warm"):
        for way in WAYS:
            case(scratch, kind, way)
        printed(scratch, kind)
    case(scratch, "tensor", "accelerate")      # an LR that is a tensor
    return end()


sys.exit(main())
