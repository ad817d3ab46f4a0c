"""adopt.py TOOL SCRATCH: runs of a script's own, gone on with by trainers that never saved them.

A torch file with model, optimizer, scheduler and streams becomes a checkpoint of accelerate on 1 to 3 processes and of
the HF Trainer. Unpatched, they load it, and go on: each LR is what `lr` told and what the uninterrupted run used, the
weights and moments after the load are the saved ones, and on one process the weights after twelve more updates are
those of the uninterrupted run; the streams draw what they would have drawn. Prints a line per failure, then
`N passed, N failed`.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
import torch.multiprocessing as mp
from torch.optim import lr_scheduler as S
from count import end, expect

AT, MORE = 12, 12
KINDS = {
    "cosine": lambda o: S.CosineAnnealingLR(o, 40, eta_min=0.001),
    "step": lambda o: S.StepLR(o, 5, gamma=0.5),
    "linear": lambda o: S.LinearLR(o, start_factor=1.0, end_factor=0.1, total_iters=30),
    "exponential": lambda o: S.ExponentialLR(o, 0.97),
    "seq": lambda o: S.SequentialLR(o, [S.LinearLR(o, 0.1, 1.0, 5), S.CosineAnnealingLR(o, 45)], [5]),
}
# the same curve as the Trainer's own, which it builds from its arguments
FUNCTION = "transformers:cosine,num_warmup_steps=3,num_training_steps=40"


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.last = torch.nn.Linear(3, 2), torch.nn.Linear(2, 1)

    def forward(self, x=None, **_):
        return {"loss": self.last(self.first(x)).pow(2).mean()}


def optimizer(m):
    p = list(m.parameters())
    return torch.optim.AdamW([{"params": p[0::2], "weight_decay": 0.1}, {"params": p[1::2], "weight_decay": 0.0,
                                                                         "lr": 0.02}], lr=0.1, foreach=False)


def function(o):
    from transformers import get_scheduler

    return get_scheduler("cosine", o, num_warmup_steps=3, num_training_steps=40)


def lrs(o):
    return [float(g["lr"]) for g in o.param_groups]


def update(m, o, s):
    o.zero_grad()
    m(torch.ones(4, 3))["loss"].backward()
    o.step()
    s.step()


def draws():
    return [random.random(), float(np.random.random_sample()), float(torch.rand(1))]


def truth(name, path):
    """Writes the run's file; what the run goes on with."""
    m = Net()
    o = optimizer(m)
    s = (KINDS.get(name) or function)(o)
    for _ in range(AT):
        update(m, o, s)
    rng = {"python": random.getstate(), "numpy": np.random.get_state(), "torch": torch.get_rng_state()}
    torch.save({"model": m.state_dict(), "optimizer": o.state_dict(), "scheduler": s.state_dict(), "step": AT,
                "rng": rng}, path)
    saved, moments, coming, next_draws = dict(m.state_dict()), o.state_dict()["state"], [], draws()
    saved = {k: v.clone() for k, v in saved.items()}
    moments = {(k, n): v.clone() for k, d in moments.items() for n, v in d.items()}
    for _ in range(MORE):
        coming.append(lrs(o))
        update(m, o, s)
    return {"saved": saved, "moments": moments, "lrs": coming, "end": m.state_dict(), "draws": next_draws}


def loaded(m, o, want):
    """What is not as it was saved."""
    wrong = [k for k, v in m.state_dict().items() if not torch.equal(v, want["saved"][k])]
    state = o.state_dict()["state"]
    return wrong + [f"{k}.{n}" for (k, n), v in want["moments"].items() if not torch.equal(state[k][n], v)]


def accelerate_rank(rank, world, port, name, out, want, answers):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(world), RANK=str(rank),
                      LOCAL_RANK=str(rank), ACCELERATE_USE_CPU="1", OMP_NUM_THREADS="1")
    from accelerate import Accelerator

    a = Accelerator(cpu=True)
    m = Net()
    o = optimizer(m)
    s = KINDS[name](o)
    m, o, s = a.prepare(m, o, s)
    a.load_state(out)
    drawn, wrong, used = draws(), loaded(a.unwrap_model(m), o, want), []
    for _ in range(MORE):
        used.append(lrs(o))
        o.zero_grad()
        a.backward(m(torch.ones(4, 3))["loss"])
        o.step()
        s.step()
    end = {k: v.tolist() for k, v in a.unwrap_model(m).state_dict().items()}
    answers.put((rank, a.num_processes, drawn, wrong, used, end))


def trainer_process(out, want, scratch, answers):
    from transformers import Trainer, TrainerCallback, TrainingArguments

    used, begin = [], {}

    class Watch(TrainerCallback):
        def on_train_begin(self, args, state, control, model=None, optimizer=None, **_):
            begin["wrong"] = loaded(model, optimizer, want)


        def on_pre_optimizer_step(self, args, state, control, optimizer=None, **_):
            used.append(lrs(optimizer))

    m = Net()
    o = optimizer(m)
    args = TrainingArguments(output_dir=scratch, lr_scheduler_type="cosine", warmup_steps=3, max_steps=40,
                             per_device_train_batch_size=4, use_cpu=True, report_to=[], save_strategy="no",
                             disable_tqdm=True, max_grad_norm=0, logging_strategy="no")

    class Own(Trainer):
        def create_optimizer(self, *_):
            self.optimizer = o
            return o

    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            control.should_training_stop = state.global_step >= AT + MORE

    data = [{"x": torch.ones(3)}] * 400
    t = Own(model=m, args=args, train_dataset=data, callbacks=[Watch(), Stop()])
    t.train(resume_from_checkpoint=out)
    end = {k: v.tolist() for k, v in m.state_dict().items()}
    answers.put((0, 1, None, begin["wrong"], used, end))


def tool(*args):
    p = subprocess.run([sys.argv[1], *map(str, args), "--json"], capture_output=True, text=True, timeout=60)
    doc = json.loads(p.stdout)
    expect(p.returncode == 0, f"{args}: exit {p.returncode}: {doc.get('error') or doc.get('report')}")
    return doc if p.returncode == 0 else None


def near(a, b):
    return len(a) == len(b) and all(abs(x - y) <= 4e-15 * abs(y) for x, y in zip(a, b))


def compare(what, answers, n, want, told):
    for _ in range(n):
        rank, world, drawn, wrong, used, end = answers.get(timeout=120)
        expect(world == n, f"{what}: {world} processes")
        expect(not wrong, f"{what}: rank {rank}: not as saved: {wrong[:3]}")
        expect(len(used) == MORE, f"{what}: {len(used)} updates")
        for k, row in enumerate(used):
            expect(near(row, want["lrs"][k]), f"{what}: update {AT + 1 + k} uses {row}, the run {want['lrs'][k]}")
            expect(near(row, told[k]), f"{what}: update {AT + 1 + k} uses {row}, lr told {told[k]}")
        if n == 1:
            expect(all(v == want["end"][k].tolist() for k, v in end.items()), f"{what}: other weights at the end")
        if rank == 0 and drawn:
            expect(drawn == want["draws"], f"{what}: rank 0 draws {drawn}, the run {want['draws']}")


def main():
    scratch, port = Path(sys.argv[2]), 29610
    scratch.mkdir(parents=True, exist_ok=True)
    ctx = mp.get_context("spawn")
    for name, worlds in zip(KINDS, ([1], [3], [1], [2], [3])):
        src = scratch / f"{name}.pt"
        want = truth(name, src)
        for world in worlds:
            out = scratch / f"{name}-{world}"
            if not tool("convert", src, out, "--to", "accelerate", "--dp", world):
                continue
            told = [r["lr"] for r in tool("lr", out, "--from", AT + 1, "--to", AT + MORE)["before"]]
            answers, port = ctx.Queue(), port + 1
            ranks = [ctx.Process(target=accelerate_rank, args=(r, world, port, name, str(out), want, answers))
                     for r in range(world)]
            for p in ranks:
                p.start()
            compare(f"accelerate, {name}, {world} processes", answers, world, want, told)
            for p in ranks:
                p.join()
    src, out = scratch / "function.pt", scratch / "checkpoint-12"
    want = truth("function", src)
    if tool("convert", src, out, "--to", "hf_trainer", "--dp", 1, "--schedule", FUNCTION):
        told = [r["lr"] for r in tool("lr", out, "--from", AT + 1, "--to", AT + MORE, "--schedule", FUNCTION)["before"]]
        answers = ctx.Queue()
        p = ctx.Process(target=trainer_process, args=(str(out), want, str(scratch / "trainer"), answers))
        p.start()
        compare("HF Trainer", answers, 1, want, told)
        p.join()
    return end()


if __name__ == "__main__":
    sys.exit(main())
