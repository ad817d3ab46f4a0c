"""trainer_deepspeed.py TOOL TMP: a run of the Trainer or of accelerate under DeepSpeed goes on at other sizes.

Trains a small Llama with transformers' Trainer and ZeRO-1, 2 and 3 on two processes (gloo, no device), and with
accelerate's save_state; converts each checkpoint to 1, 2, 3 and 4 processes and one to another stage, and resumes
with the same code: masters and moments are bit for bit the saved ones, each rank draws what it would have drawn, a new
one draws its own, LR and losses are those of the run that was not stopped.

Prints a line per failure, then `N passed, N failed`.
"""

import json, os, socket, subprocess, sys
from pathlib import Path
from count import end, expect

SAVED, LAST = 6, 9
CASES = {  # name: (stage, of the Trainer or accelerate's, what ds_config has)
    "z1": (1, "trainer", ""),
    "z2": (2, "trainer", ""),
    "z3": (3, "trainer", ""),
    "z2_ds": (2, "trainer", "scheduler"),
    "z2_opt": (2, "trainer", "optimizer"),  # DeepSpeed steps a scheduler that the Trainer builds
    "acc_z2": (2, "accelerate", ""),
    "acc_z3_ds": (3, "accelerate", "scheduler bf16"),
}
TO_STAGE = ("z2", 2, 3)  # case, processes, stage of ZeRO


def settings(stage, native):
    ds = {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    if "bf16" in native:
        ds["bf16"] = {"enabled": True}
    if "optimizer" in native:
        adam = {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto", "torch_adam": True}
        ds["optimizer"] = {"type": "AdamW", "params": adam}
    if "scheduler" in native:
        curve = {"warmup_min_lr": 0, "warmup_max_lr": 2e-3, "warmup_num_steps": 3, "total_num_steps": 16}
        ds["scheduler"] = {"type": "WarmupDecayLR", "params": curve}
    return ds


# what each process runs


def environment():
    """gloo without a device: accelerate has no name for it, and DeepSpeed compiles its own reductions else."""
    os.environ.update(DS_ACCELERATOR="cpu", DS_BUILD_OPS="0", ACCELERATE_TORCH_DEVICE="cpu")
    import torch, deepspeed.comm.torch, accelerate.state

    torch.set_num_threads(1)
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda *a, **k: None
    named = ("gloo", accelerate.state.DistributedType.MULTI_XPU)
    accelerate.state.PartialState._prepare_backend = lambda *a, **k: named


def model():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = dict(hidden_size=32, intermediate_size=60, num_hidden_layers=2, num_attention_heads=4)
    ids = dict(vocab_size=61, bos_token_id=0, eos_token_id=1, pad_token_id=2)
    return LlamaForCausalLM(LlamaConfig(num_key_value_heads=2, max_position_embeddings=32, **sizes, **ids))


class Rows:
    def __len__(self):
        return 240

    def __getitem__(self, i):
        import torch

        row = torch.randint(3, 61, (16,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": row, "labels": row.clone()}


def draws():
    """The next numbers of each stream, which stay where they are."""
    import random, numpy, torch

    kept = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
    out = [random.random(), float(numpy.random.rand()), float(torch.rand(1, dtype=torch.float64))]
    random.setstate(kept[0])
    numpy.random.set_state(kept[1])
    torch.set_rng_state(kept[2])
    return out


def draw_apart(rank):
    import random, numpy, torch

    for _ in range(rank + 1):
        random.random(), numpy.random.rand(), torch.rand(1)


def masters(engine):
    """Each parameter's master and moments, whole."""
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

    out = {}
    if hasattr(engine.optimizer, "_lazy_init_hp_params_optimizer_state"):  # linked before there were moments
        engine.optimizer._hp_optimizer_states_linked = False
        engine.optimizer._lazy_init_hp_params_optimizer_state()
    for name, p in engine.module.named_parameters():
        name = name.removeprefix("module.")
        out[name + ".master"] = safe_get_full_fp32_param(p).clone()
        for slot in "exp_avg", "exp_avg_sq":
            out[f"{name}.{slot}"] = safe_get_full_optimizer_state(p, slot).clone()
    return out


def reset():
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(True)
    GradientState._reset_state()


def trainer_run(stage, native, out, resume, stop):
    from transformers import Trainer, TrainerCallback, TrainingArguments

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    told = {"losses": {}, "lrs": {}, "draws": None, "state": None}
    args = TrainingArguments(
        output_dir=out, per_device_train_batch_size=12 // world, max_steps=16, save_steps=SAVED, logging_steps=1,
        report_to=[], seed=3, learning_rate=2e-3, weight_decay=0.1, lr_scheduler_type="cosine", warmup_steps=3,
        optim="adamw_torch", disable_tqdm=True, deepspeed=settings(stage, native),
    )  # fmt: skip

    class Watch(TrainerCallback):
        def on_step_begin(self, args, state, control, **k):
            if state.global_step == 0:
                draw_apart(rank)
            if state.global_step == SAVED:
                told["draws"], told["state"] = draws(), masters(trainer.model_wrapped)

        def on_log(self, args, state, control, logs=None, **k):
            if "loss" in (logs or {}):
                told["losses"][state.global_step] = logs["loss"]
                told["lrs"][state.global_step] = logs["learning_rate"]

        def on_step_end(self, args, state, control, **k):
            control.should_training_stop = state.global_step >= stop

    trainer = Trainer(model=model(), args=args, train_dataset=Rows(), callbacks=[Watch()])
    trainer.train(resume_from_checkpoint=resume)
    return told


def accelerate_run(stage, native, out, resume, stop):
    import torch
    from accelerate import Accelerator, DeepSpeedPlugin
    from accelerate.utils import DummyScheduler

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    ds = settings(stage, native) | {"train_micro_batch_size_per_gpu": 12 // world, "gradient_accumulation_steps": 1}
    os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
    acc = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=ds))
    net = model()
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    curve = lambda t: max(0.1, 1 - t / (16 * world))  # noqa: E731
    sched = DummyScheduler(opt) if "scheduler" in native else torch.optim.lr_scheduler.LambdaLR(opt, curve)
    net, opt, sched = acc.prepare(net, opt, sched)
    told = {"losses": {}, "lrs": {}, "draws": None, "state": None}
    first = 0
    if resume:
        acc.load_state(resume)
        first = SAVED
    rows = Rows()
    for step in range(first, stop):
        if step == 0:
            draw_apart(rank)
        if step == SAVED and not resume:
            acc.save_state(f"{out}/checkpoint-{SAVED}")
        if step == SAVED:
            told["draws"], told["state"] = draws(), masters(net)
        at = step * 12 + rank * (12 // world)
        batch = torch.stack([rows[i]["input_ids"] for i in range(at, at + 12 // world)])
        told["lrs"][step + 1] = opt.param_groups[0]["lr"]
        loss = net(input_ids=batch, labels=batch).loss
        told["losses"][step + 1] = acc.reduce(loss.detach(), "mean").item()
        acc.backward(loss)
        opt.step()
        sched.step()
        opt.zero_grad()
    return told


def worker(jobs):
    """jobs: a JSON file, lists of a case, stage, where to write, and what to resume from."""
    environment()
    import torch

    rank = int(os.environ["RANK"])
    for name, stage, out, resume in json.loads(Path(jobs).read_text()):
        of, native = CASES[name][1:]
        run = trainer_run if of == "trainer" else accelerate_run
        told = run(stage, native, out, resume, LAST)
        state = told.pop("state")
        Path(out).mkdir(parents=True, exist_ok=True)
        Path(f"{out}/told-{rank}.json").write_text(json.dumps(told))
        if rank == 0:
            torch.save(state, f"{out}/state.pt")
        torch.distributed.barrier()
        reset()
    sys.stdout.flush()
    os._exit(0)


# what starts them


def launch(tmp, world, jobs):
    path = tmp / f"jobs-{world}.json"
    path.write_text(json.dumps(jobs))
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = dict(os.environ, WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
               MASTER_PORT=str(port), OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")  # fmt: skip
    all_of = []
    for rank in range(world):
        log = open(tmp / f"log-{world}-{rank}", "w")
        one = dict(env, RANK=str(rank), LOCAL_RANK=str(rank))
        all_of.append(subprocess.Popen([sys.executable, __file__, "--worker", str(path)], env=one, stdout=log,
                                       stderr=subprocess.STDOUT))  # fmt: skip
    try:
        codes = [p.wait(900) for p in all_of]
    except subprocess.TimeoutExpired:
        codes = ["timeout"]
    for p in all_of:
        p.kill()
    for rank, code in enumerate(codes):
        text = (tmp / f"log-{world}-{rank}").read_text()[-1500:] if code else ""
        expect(code == 0, f"{world} processes, rank {rank}: exit {code}\n{text}")
    return not any(codes)


def told(out, rank):
    return json.loads(Path(f"{out}/told-{rank}.json").read_text())


def convert(tool, source, out, *more):
    p = subprocess.run([tool, "convert", source, out, "--json", *more], capture_output=True, text=True, timeout=300)
    doc = json.loads(p.stdout)
    expect(p.returncode == 0, f"convert {source} {more}: exit {p.returncode}: {doc.get('error') or doc.get('report')}")
    if p.returncode:
        return False
    ranked = "rng_state", "random_states"
    here, there = ({f.name for f in Path(d).iterdir() if not f.name.startswith(ranked)} for d in (source, out))
    expect(here <= there, f"{out} has not {here - there}")
    return True


def compare(name, source, out, world):
    import torch

    was, now = (torch.load(f"{d}/state.pt", weights_only=True) for d in (source, out))
    expect(was.keys() == now.keys(), f"{name} on {world}: other parameters")
    wrong = [k for k in was if not torch.equal(was[k], now.get(k))]
    expect(not wrong, f"{name} on {world}: {len(wrong)} of {len(was)} differ: {wrong[:3]}")
    first = told(source, 0)
    drawn = []
    for rank in range(world):
        t = told(out, rank)
        drawn.append(t["draws"])
        if rank < 2:
            same = t["draws"] == told(source, rank)["draws"]
            expect(same, f"{name} on {world}: rank {rank} draws {t['draws']}")
    for one in zip(*drawn):
        expect(len(set(one)) == world, f"{name} on {world}: ranks draw the same: {one}")
    last = told(out, 0)
    for step in map(str, range(SAVED + 1, LAST + 1)):
        lr, loss = last["lrs"].get(step), last["losses"].get(step)
        expect(lr == first["lrs"][step], f"{name} on {world}: step {step}: LR {lr}, not {first['lrs'][step]}")
        near = loss is not None and abs(loss - first["losses"][step]) <= (1e-7 if world == 2 else 2e-4)
        expect(near, f"{name} on {world}: step {step}: loss {loss}, not {first['losses'][step]}")


def main(tool, tmp):
    where = {n: tmp / n for n in CASES}
    if not launch(tmp, 2, [[n, CASES[n][0], str(where[n]), None] for n in CASES]):
        return
    for world in (2, 3) if os.environ.get("CI") else (1, 2, 3, 4):  # where time is short
        jobs, of = [], []
        todo = [(n, CASES[n][0], []) for n in CASES]
        if world == TO_STAGE[1]:
            todo.append((TO_STAGE[0], TO_STAGE[2], ["--zero", str(TO_STAGE[2])]))
        for name, stage, more in todo:
            at = tmp / f"to{world}" / f"{name}_{stage}"
            at.mkdir(parents=True)
            here = at / f"checkpoint-{SAVED}"
            if convert(tool, str(where[name] / f"checkpoint-{SAVED}"), str(here), "--dp", str(world), *more):
                jobs.append([name, stage, str(at), str(here)])
                of.append((name, at))
        if launch(tmp, world, jobs):
            for name, at in of:
                compare(name, where[name], at, world)


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        worker(sys.argv[2])
    main(sys.argv[1], Path(sys.argv[2]))
    sys.exit(end())
