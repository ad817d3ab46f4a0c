"""make.py DIR: calls.json (draws of torch 2.15, random and numpy) and states.pt (their states as torch.save has them)."""
import hashlib, json, random, struct, sys     # a call: [name, dtype, bounds or mean and std, elements, head of the SHA-256 of its bytes, integers as int64]
import numpy as np, torch
out = sys.argv[1]
torch.set_num_threads(1)
DT = {"float32": torch.float32, "float64": torch.float64, "float16": torch.float16, "bfloat16": torch.bfloat16, "int64": torch.int64, "int32": torch.int32, "uint8": torch.uint8, "bool": torch.bool}
def raw(t, whole=False):
    if isinstance(t, torch.Tensor):
        t = t.reshape(-1)
        if whole or t.dtype in (torch.int32, torch.uint8, torch.bool): t = t.to(torch.int64)
        return t.view(torch.uint8).numpy().tobytes()
    a = np.asarray(t)
    return (a.astype("<i8") if a.dtype.kind in "iub" else a).tobytes()
cases = []
def case(kind, seed, make, calls, do):
    g = make(seed); c = {"kind": kind, "seed": str(seed), "calls": []}
    for call in calls:
        c["calls"].append([call["op"], call.get("dtype", ""), call.get("a", 0), call.get("b", 0), call["n"], hashlib.sha256(raw(do(g, call), call["op"] == "random")).hexdigest()[:16]])
    cases.append(c)
U = lambda dt, lo, hi, n: dict(op="uniform", dtype=dt, a=lo, b=hi, n=n)
N = lambda dt, m, s, n: dict(op="normal", dtype=dt, a=m, b=s, n=n)
I = lambda dt, lo, hi, n: dict(op="integers", dtype=dt, a=lo, b=hi, n=n)
P = lambda n: dict(op="permutation", n=n)
R = lambda dt, n: dict(op="random", dtype=dt, n=n)
def tmake(seed): g = torch.Generator(); g.manual_seed(seed); return g
def tdo(g, c):
    o, n = c["op"], c["n"]
    if o == "uniform": return torch.empty(n, dtype=DT[c["dtype"]]).uniform_(c["a"], c["b"], generator=g)
    if o == "normal": return torch.empty(n, dtype=DT[c["dtype"]]).normal_(c["a"], c["b"], generator=g)
    if o == "integers": return torch.randint(c["a"], c["b"], (n,), dtype=DT[c["dtype"]], generator=g)
    if o == "random": return torch.empty(n, dtype=DT[c["dtype"]]).random_(generator=g)
    return torch.randperm(n, generator=g)
fl = ["float32", "float64", "float16", "bfloat16"]
tc = []
for d in fl: tc += [U(d, 0, 1, 5), U(d, 0, 1, 1300), U(d, -0.3, 1.7, 9), U(d, -0.3, 1.7, 1300), N(d, 0, 1, 3), N(d, 0.1, 1.7, 4), N(d, 0.1, 1.7, 15), N(d, 0.1, 1.7, 16), N(d, 0.1, 1.7, 1001), N(d, 0, 1, 100000)]
tc += [I("int64", -3, 97, 7), I("int64", 0, 1 << 28, 700), I("int64", 0, (1 << 28) - 1, 700), I("int64", -(1 << 62), 1 << 62, 3), I("int32", 0, 1 << 30, 4), I("uint8", 0, 256, 5), I("bool", 0, 2, 8), P(1), P(2), P(3000)]
tc += [R(d, 5) for d in ("int64", "int32", "uint8", "bool", "float32", "float64", "float16", "bfloat16")]
for s in (7, 2**40 + 12345): case("torch_cpu", s, tmake, tc, tdo)
def pdo(g, c):
    o, n = c["op"], c["n"]
    if o == "uniform": return np.array([g.uniform(c["a"], c["b"]) for _ in range(n)])
    if o == "normal": return np.array([g.gauss(c["a"], c["b"]) for _ in range(n)])
    if o == "integers": return np.array([g.randrange(c["a"], c["b"]) for _ in range(n)])
    if o == "bits": return np.array([g.getrandbits(c["b"]) for _ in range(n)], dtype="u8")
    a = list(range(n)); g.shuffle(a); return np.array(a)
B = lambda k, n: dict(op="bits", b=k, n=n)
d = "float64"
pc = [U(d, 0, 1, 5), U(d, -0.3, 1.7, 700), N(d, 0, 1, 3), N(d, 0.1, 1.7, 501), I("int64", -3, 97, 7), I("int64", 0, 2**62 + 1, 50), B(1, 3), B(33, 3), B(64, 3), P(1), P(1000)]
for s in (7, 2**40 + 12345): case("python", s, random.Random, pc, pdo)
def ndo(g, c):
    o, n = c["op"], c["n"]; ints = getattr(g, "integers", None) or g.randint
    if o == "uniform": return (g.uniform(c["a"], c["b"], n) if c["dtype"] == "float64" and (c["a"], c["b"]) != (0, 1) else g.random_sample(n) if hasattr(g, "random_sample") else g.random(n, dtype=c["dtype"]))
    if o == "normal": return g.normal(c["a"], c["b"], n)
    if o == "integers": return ints(c["a"], c["b"], n, dtype=c["dtype"])
    return g.permutation(n)
ni = [I(t, lo, hi, n) for t, lo, hi, n in (("int64", -3, 97, 7), ("int64", 0, 2**32, 5), ("int64", 0, 2**32 + 1, 500), ("int64", 0, 2**62 + 1, 50), ("int64", 5, 6, 3), ("int32", -5, 2**31 - 1, 400), ("uint32", 0, 2**32, 5), ("uint32", 0, 3 * 2**30, 50), ("int16", -300, 300, 301), ("uint16", 0, 65536, 5), ("uint8", 0, 255, 301), ("uint8", 0, 256, 5), ("int8", -128, 100, 30), ("bool", 0, 2, 70), ("uint64", 0, 2**63 - 1, 4))]
nc = [U(d, 0, 1, 5), U(d, -0.3, 1.7, 700), N(d, 0, 1, 3), N(d, 0.1, 1.7, 501)] + ni + [P(1), P(1000)]
for s in (7, 2**32 - 1): case("numpy", s, np.random.RandomState, nc, ndo)
gc = [U(d, 0, 1, 5), U("float32", 0, 1, 7), U(d, -0.3, 1.7, 700)] + ni + [P(1), P(1000), U("float32", 0, 1, 3), U(d, 0, 1, 5)]
for name in ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"):
    for s in (7, 2**40 + 12345): case(name.lower(), s, lambda q: np.random.Generator(getattr(np.random, name)(q)), gc, ndo)
with open(out + "/calls.json", "w") as f:
    f.write('{"torch": "%s", "numpy": "%s", "cases": [\n' % (torch.__version__, np.__version__) + ",\n".join(json.dumps(c) for c in cases) + "\n]}\n")
g = torch.Generator(); g.manual_seed(11); torch.randn(3, generator=g, dtype=torch.float64)
random.seed(12); random.gauss(0, 1); np.random.seed(13); np.random.randn(3)
rs = np.random.RandomState(14); pcg = np.random.default_rng(15); pcg.integers(0, 5, dtype=np.uint32)
cuda = torch.tensor(list(struct.pack("<QQ", 0x123456789abcdef0, 4000)), dtype=torch.uint8)
old = torch.cat([torch.full((800,), 255, dtype=torch.uint8), cuda])
st = {"torch_cpu": g.get_state(), "generator": g, "torch_cuda": cuda, "torch_cuda_old": old, "python": random.getstate(), "numpy": np.random.get_state(), "pcg64": pcg.bit_generator.state, "pcg64_object": pcg,
      "numpy_object": rs, "pcg64dxsm": np.random.PCG64DXSM(16).state, "philox": np.random.Philox(17).state, "sfc64": np.random.SFC64(18).state, "all_cuda": [cuda, cuda.clone()]}
torch.save(st, out + "/states.pt")
