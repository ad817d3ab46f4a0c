"""bench_rng.py: the draws of bench_rng by torch, one thread, into memory that exists."""
import time, torch
torch.set_num_threads(1)
N = 1 << 22
F, D, B, I, L = torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.int64
rows = [("uniform f32", F, lambda t: t.uniform_()), ("uniform f64", D, lambda t: t.uniform_()), ("normal f32", F, lambda t: t.normal_()), ("normal f64", D, lambda t: t.normal_()),
        ("uniform bf16", B, lambda t: t.uniform_()), ("normal bf16", B, lambda t: t.normal_()), ("random i32", I, lambda t: t.random_()), ("randint i64", L, lambda t: t.random_(0, 1000)), ("randperm", L, lambda t: torch.randperm(N, out=t))]
for name, dt, f in rows:
    t = torch.empty(N, dtype=dt).zero_()
    best = 9.0
    for _ in range(5):
        a = time.perf_counter(); f(t); best = min(best, time.perf_counter() - a)
    print("%-14s %7.3f ns" % (name, best / N * 1e9))
