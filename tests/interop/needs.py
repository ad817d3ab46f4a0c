"""needs.py TOOL SCRATCH: where accelerate's own load_state stops, check says so before.

Two models, optimizers, schedulers and objects of the script's; each file is taken away in turn. Prints a line per
failure, then `N passed, N failed`.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from count import end, expect

BLIND = "custom_checkpoint_1.pkl"      # nothing tells how many objects the script has


class Counter:
    def state_dict(self):
        return {"n": 1}

    def load_state_dict(self, state):
        assert state["n"] == 1


def main():
    scratch = Path(sys.argv[2])
    shutil.rmtree(scratch, ignore_errors=True)
    run = Accelerator(cpu=True)
    models = [torch.nn.Linear(3, 4), torch.nn.Linear(5, 2)]
    optimizers = [torch.optim.AdamW(m.parameters()) for m in models]
    schedulers = [torch.optim.lr_scheduler.StepLR(o, 3) for o in optimizers]
    run.register_for_checkpointing(Counter(), Counter())
    prepared = run.prepare(*models, *optimizers, *schedulers)
    for model, optimizer, width in zip(prepared[:2], prepared[2:4], (3, 5)):
        model(torch.randn(2, width)).sum().backward()
        optimizer.step()
    run.save_state(str(scratch / "whole"))
    for gone in [None, *sorted(os.listdir(scratch / "whole"))]:
        if gone and gone.startswith("model"):
            continue                   # what the tool reads itself, it misses itself
        shutil.rmtree(scratch / "less", ignore_errors=True)
        shutil.copytree(scratch / "whole", scratch / "less")
        if gone:
            os.remove(scratch / "less" / gone)
        try:
            run.load_state(str(scratch / "less"))
            stops = False
        except Exception:  # noqa: BLE001 - whatever it is, the resume has failed
            stops = True
        p = subprocess.run([sys.argv[1], "check", str(scratch / "less")], capture_output=True, text=True)
        told = p.returncode == 1 or "_RESUME_" in p.stdout
        expect(told == stops or gone == BLIND or (not stops and p.returncode == 0),
               f"without {gone} load_state {'stops' if stops else 'loads'}, check exits {p.returncode}: {p.stdout}")
        expect(gone is not None or not stops and p.returncode == 0 and not told, f"the whole: {p.stdout}")
    return end()


sys.exit(main())
