"""llmc.py TOOL CORPUS: checkpoints converted by TOOL are loaded by llm.c's own program, which takes one step and saves.

LLMC_SRC=DIR is llm.c's source tree, which is compiled unchanged by nvcc and linked with llmc_device.c: a CUDA runtime
without a device, whose kernels do nothing. So what the next checkpoint holds of moments and masters (and of parameters
where there are no masters) has to be what the converted one held, the step is one more, and the position in the data
moved on. BUILD=DIR keeps the two programs."""

import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEADER = 1024  # 256 ints
counts = [0, 0]


def expect(ok, text):
    counts[not ok] += 1
    if not ok:
        print(text)
    return ok


def build(src, out):
    """CUDA 13 gave cudaMemAdvise a parameter that llm.c of 2025-05 does not know; it is a hint."""
    shim = out / "advice.h"
    advice = "#define cudaMemAdvise(p, n, a, d) ((void)(p), (void)(n), cudaSuccess)\n"
    shim.write_text("#include <cuda_runtime.h>\n" + advice)
    subprocess.run(["cc", "-O1", "-w", "-c", HERE / "llmc_device.c", "-o", out / "device.o"], check=True)
    for precision in ("FP32", "BF16"):
        program = out / f"llmc_{precision.lower()}"
        if program.exists():
            continue
        nvcc = [os.environ.get("NVCC", "nvcc"), "-std=c++17", "-O1", "-w", "-include", shim, "-DMULTI_GPU"]
        nvcc += [f"-DENABLE_{precision}", src / "train_gpt2.cu", "-cudart", "none", "-c", "-o", out / "train.o"]
        subprocess.run(nvcc, check=True, cwd=src)
        subprocess.run(["g++", out / "train.o", out / "device.o", "-o", program], check=True)


def sections(path):
    """Header, the rest, and the place in the data, of a state file."""
    raw = path.read_bytes()
    h = struct.unpack("<256i", raw[:HEADER])
    return h, raw[HEADER:], struct.unpack("<QQ", raw[120:136])


def resume(program, out, case, truth, ranks, zero, masters, step, batch):
    """One more update on `ranks` processes; their exit codes."""
    data = case / "data"
    sequential = "-a" in truth["args"]
    tokens = str(data / "train_*.bin")
    common = ["-i", tokens, "-j", tokens, "-o", str(out), "-y", "1", "-b", str(batch)]
    common += ["-t", str(truth["seq_len"]), "-x", str(step + 1), "-n", "1", "-v", "1000", "-m", "1", "-s", "0"]
    common += ["-w", str(masters), "-z", str(zero), "-pi", "fs", "-pf", str(out.parent), "-pn", str(ranks)]
    common += ["-a", "1"] if sequential else []
    sync = out.parent / "ncclUniqueId.sync"
    if sync.exists():
        sync.unlink()
    logs = [open(out.parent / f"log{r}", "w+") for r in range(ranks)]
    ps = []
    for r in range(ranks):
        ps.append(subprocess.Popen([program, *common, "-pr", str(r)], stdout=logs[r], stderr=subprocess.STDOUT))
        while not (sync.exists() and sync.stat().st_size == 128) and ps[0].poll() is None:
            time.sleep(0.005)
    codes = [p.wait(timeout=120) for p in ps]
    last = []
    for f in logs:
        f.seek(0)
        last += f.read().strip().splitlines()[-1:]
        f.close()
    return codes, last


def check(tool, bin_dir, case, ranks, zero, flags, tmp):
    truth = json.loads((case / "truth.json").read_text())
    name = f"{case.name} -> {ranks} processes, ZeRO-{zero} {' '.join(flags)}"
    out = Path(tempfile.mkdtemp(dir=tmp)) / "out"
    batch = truth["micro_batch"]
    command = [tool, "convert", case / "ckpt", out, "--dp", str(ranks), "--zero", str(zero), *flags, "--json"]
    command += ["--data", str(case / "data/train_*.bin"), "--micro-batch", str(batch)]
    command += ["--seq-len", str(truth["seq_len"])]
    p = subprocess.run(command, capture_output=True, text=True)
    if p.returncode == 1 and "refused" in p.stdout:
        print(f"{name}: refused")
        return
    if not expect(p.returncode == 0, f"{name}: convert: exit {p.returncode} {p.stderr[-200:]}"):
        return
    step = max(int(f.name[5:]) for f in out.glob("DONE_*"))
    bits = struct.unpack("<256i", (out / f"model_{step:08d}.bin").read_bytes()[:HEADER])[1]
    program = bin_dir / {3: "llmc_fp32", 5: "llmc_bf16"}[bits]
    masters = sections(out / f"state_{step:08d}_00000.bin")[0][4]  # the report's -w
    codes, last = resume(program, out, case, truth, ranks, zero, masters, step, batch)
    if not expect(not any(codes), f"{name}: llm.c: exit {codes}: {last[:1]}"):
        return
    for r in range(ranks):
        a, was, at = sections(out / f"state_{step:08d}_{r:05d}.bin")
        b, now, then = sections(out / f"state_{step + 1:08d}_{r:05d}.bin")
        params = struct.unpack("<256i", (out / f"model_{step:08d}.bin").read_bytes()[:HEADER])
        n = elements(params, ranks if zero else 1) * 4 * (3 if masters else 2)
        expect(was[:n] == now[:n] and len(was) >= n, f"{name}: rank {r}: moments or masters are others")
        expect(b[10] == a[10] + 1 == step + 1, f"{name}: rank {r}: step {a[10]} and {b[10]}")
        expect(at != then, f"{name}: rank {r}: the loader did not move")
    if not masters:
        a, b = ((out / f"model_{step + k:08d}.bin").read_bytes()[HEADER:] for k in (0, 1))
        expect(a == b, f"{name}: parameters are others")


def elements(h, parts):
    """Elements of one rank's share of m: of each of GPT-2's 16 tensors, by the model's header."""
    t, layers, c, padded = h[2], h[4], h[6], h[7]
    sizes = [padded * c, t * c] + [layers * k for k in (c, c, 3 * c * c, 3 * c, c * c, c, c, c, 4 * c * c, 4 * c)]
    sizes += [layers * 4 * c * c, layers * c, c, c]
    return sum(sizes) // parts


def main():
    tool, corpus = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    src = Path(os.environ["LLMC_SRC"]).resolve()
    with tempfile.TemporaryDirectory() as tmp:
        bin_dir = Path(os.environ.get("BUILD", tmp)).resolve()
        bin_dir.mkdir(parents=True, exist_ok=True)
        build(src, bin_dir)
        for case in sorted(p.parent for p in (corpus / "llmc").glob("*/truth.json")):
            for ranks in (1, 2, 3, 4, 8):
                for zero in (0, 1):
                    if ranks > 1 or not zero:
                        check(tool, bin_dir, case, ranks, zero, [], tmp)
            check(tool, bin_dir, case, 2, 1, ["--dtype", "bf16"], tmp)
            check(tool, bin_dir, case, 2, 1, ["--dtype", "f32"], tmp)
    print(f"{counts[0]} passed, {counts[1]} failed")
    return counts[1] != 0


if __name__ == "__main__":
    sys.exit(main())
