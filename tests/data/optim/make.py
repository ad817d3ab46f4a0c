"""make.py OUT: training files of optimizers whose state is not Adam's, torch 2.15, torchao 0.18, bitsandbytes 0.50.

Each {model, optimizer, scheduler, step} after three updates, CosineAnnealingLR, but for square.pt.

adafactor.pt  torch.optim.Adafactor: row and column factors of matrices
torchao.pt    AdamW8bit: exp_avg and exp_avg_sq of `up` in OptimState8bit, LR a float32 tensor
bnb.pt        AdamW8bit: state1, state2 of `up` in blocks of 256, in a dict of their own
frozen.pt     AdamW, whose first parameter never had a gradient: it has no state
square.pt     one square matrix and `warp` of its shape, by an optimizer that nobody knows
list.pt       AdamW with an empty list in a list beside the moments, as SOAP has one for vectors
inside_ds     DeepSpeed 0.19.8, ZeRO-1 on one rank, AdamW8bit, whose moments are in a dict of the state
inside_verl.pt  the optimizer's file of ../verl/rest, its moments in such a dict
"""
import sys, torch
OUT = sys.argv[1]

class Net(torch.nn.Module):
    def __init__(self, wide, hidden):
        super().__init__()
        self.up = torch.nn.Linear(wide, hidden)
        self.down = torch.nn.Linear(hidden, 2, bias=False)
    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))

class Strange(torch.optim.Optimizer):
    def __init__(self, params): super().__init__(params, {"lr": 0.1})
    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            self.state[p]["warp"] = p.grad.clone()
            p.sub_(p.grad, alpha=self.param_groups[0]["lr"])

def train(name, make, wide=6, hidden=4, frozen=False):
    torch.manual_seed(5)
    m = Net(wide, hidden)
    o = make(m.parameters())
    s = torch.optim.lr_scheduler.CosineAnnealingLR(o, 20)
    for i in range(3):
        o.zero_grad()
        m(torch.randn(3, wide)).square().sum().backward()
        if frozen: m.up.weight.grad = None
        o.step(); s.step()
    torch.save({"model": m.state_dict(), "optimizer": o.state_dict(), "scheduler": s.state_dict(), "step": 3},
               f"{OUT}/{name}.pt")

train("adafactor", lambda p: torch.optim.Adafactor(p, lr=0.01))
train("frozen", lambda p: torch.optim.AdamW(p, lr=0.01), frozen=True)
w = torch.nn.Parameter(torch.arange(9.).reshape(3, 3))
o = Strange([w])
w.square().sum().backward(); o.step()
torch.save({"model": {"w": w.detach()}, "optimizer": o.state_dict(), "step": 1}, f"{OUT}/square.pt")
d = torch.load(f"{OUT}/frozen.pt")
for v in d["optimizer"]["state"].values(): v["GG"] = [[]]
torch.save(d, f"{OUT}/list.pt")
rest = sys.argv[0].rsplit("/", 2)[0] + "/verl/rest/global_step_2/actor/optim_world_size_1_rank_0.pt"
d = torch.load(rest, weights_only=False)
for v in d["state"].values():
    v["__bnb_optimizer_quant_state__"] = {k: v.pop(k) for k in ("exp_avg", "exp_avg_sq")}
torch.save(d, f"{OUT}/inside_verl.pt")
import torchao.optim, bitsandbytes
train("torchao", lambda p: torchao.optim.AdamW8bit(p, lr=0.01, block_size=256), 256, 16)
train("bnb", lambda p: bitsandbytes.optim.AdamW8bit(p, lr=0.01, min_8bit_size=4096), 256, 16)

import os
os.environ.update(DS_ACCELERATOR="cpu", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29656")
import deepspeed
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda *a, **k: None
m = torch.nn.Linear(4, 3)
e, *_ = deepspeed.initialize(model=m, optimizer=bitsandbytes.optim.AdamW8bit(m.parameters(), lr=0.01), config={
    "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True})
e.backward(e(torch.ones(1, 4)).sum()); e.step()
e.save_checkpoint(f"{OUT}/inside_ds", tag="global_step1")
