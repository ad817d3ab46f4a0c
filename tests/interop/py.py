"""py.py TOOL LIBRARY [--few N] [FOLDER...]: examples/ckptresume.py says what the tool says.

Every structure that it mirrors has the compiler's size and offsets. Of each checkpoint below the folders it gives the
tensors, groups, LR, streams, step and digest that the tool's --json has, the same plan and the same check; boxes are
the tool's export of the same elements; a conversion has the source's digest. The cases that fail are named, then
`N passed, N failed`.
"""

import inspect
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from count import end, expect

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))
os.environ["CKPTRESUME_LIB"] = os.path.abspath(sys.argv[2])
import ckptresume as ck  # noqa: E402


def layout(scratch):
    """Each mirrored structure against a program that the compiler made of the header."""
    rows, program = [], ["#include <stddef.h>", "#include <stdio.h>", '#include "ckptresume.h"', "int main(void) {"]
    for name, x in sorted(vars(ck).items()):
        if not (isinstance(x, type) and issubclass(x, ck.C.Structure) and x is not ck.C.Structure):
            continue
        of = {"_Node": "ckr_node", "progress": None}.get(x.__name__, x.__name__)
        if of is None:
            continue
        rows.append((of, None, ck.C.sizeof(x)))
        program.append(f'printf("%zu\\n", sizeof({of}));')
        for field in x._fields_:
            key = field[0].rstrip("_") if field[0] != "complex_" else field[0]
            key = "as" if field[0] == "as_" else field[0]
            rows.append((of, field[0], getattr(x, field[0]).offset))
            program.append(f'printf("%zu\\n", offsetof({of}, {key}));')
    program.append("return 0; }")
    (scratch / "abi.c").write_text("\n".join(program))
    subprocess.run(["cc", "-std=c99", f"-I{ROOT}", str(scratch / "abi.c"), "-o", str(scratch / "abi")], check=True)
    want = [int(v) for v in subprocess.run([str(scratch / "abi")], capture_output=True, text=True).stdout.split()]
    for (of, field, have), v in zip(rows, want):
        expect(have == v, f"{of}.{field or 'size'}: {have}, the compiler has {v}")
    expect(len(rows) == len(want) > 200, f"{len(rows)} rows")


def enums():
    """The lists of words are the header's, in its order."""
    text = (ROOT / "ckptresume.h").read_text()
    for words, enum in ((ck._MODES, "ckr_mode"), (ck._VERDICTS, "ckr_verdict"), (ck._SEVERITIES, "ckr_severity"),
                        (ck._POLICIES, "ckr_lr_policy"), (ck._RNG, "ckr_rng_policy"), (ck._COLUMNS, "ckr_column")):
        body = re.search(r"typedef enum %s \{(.*?)\} %s;" % (enum, enum), text, re.S).group(1)
        names = re.findall(r"\bCKR_[A-Z_]+", re.sub(r"/\*.*?\*/", "", body, flags=re.S))
        expect([n.lower().endswith(w) for n, w in zip(names, words)] == [True] * len(words) == [True] * len(names),
               f"{enum}: {names}")
    body = re.search(r"typedef enum ckr_node_kind \{(.*?)\}", text, re.S).group(1)
    kinds = re.findall(r"\bCKR_NODE_([A-Z]+)", body)
    at = {k: i for i, k in enumerate(kinds)}
    expect([at[k] for k in "NONE BOOL INT BIGINT FLOAT COMPLEX STR BYTES BYTEARRAY LIST TUPLE".split()] ==
           list(range(11)) and at["DICT"] == 13 and at["DEFAULTDICT"] == 16 and at["TENSOR"] == 17 and
           at["SIZE"] == 21 and at["GLOBAL"] == 25 and at["OBJECT"] == 26, f"kinds {kinds}")


def words():
    """What a text says in C's names is said in Python's: every field of the header's table is a keyword here."""
    for said, want in (
            ("ckr_target.lr_policy = CKR_LR_SPLICE or CKR_LR_STRETCH avoids it",
             'lr_policy="splice" or "stretch" avoids it'),
            ("take ckr_target.without = CKR_OPTIMIZER | CKR_GROUPS", 'take without=["optimizer", "groups"]'),
            ("ckr_target.without = all but CKR_PARAMS",
             'without=["optimizer", "groups", "schedule", "rng", "progress", "data"]'),
            ("ckr_target.topology.zero = CKR_ZERO_OFF", "zero=0"), ("ckr_target.topology.zero = 2", "zero=2"),
            ("take a ckr_target.topology.dp that divides it, or ckr_target.sets batch_size=66",
             'take a dp that divides it, or sets={"batch_size": 66}'),
            ("ckr_target.sets GROUP.weight_decay=VALUE where", 'sets={("GROUP", "weight_decay"): VALUE} where'),
            ("ckr_target.sets warmup_steps rescale it", "sets warmup_steps rescale it"),
            ("ckr_target.dialect = dcp, which torch loads", 'dialect="dcp", which torch loads'),
            ("ckr_target.variant = full: FSDP1 and", 'variant="full": FSDP1 and'),
            ("ckr_target.schedule = torch:... takes one", 'schedule="torch:..." takes one'),
            ("ckr_target.seed = S, then", "seed=S, then"),
            ("convert it with ckr_target.repair", "convert it with repair=True"),
            ("ckr_open_desc.schedule = KIND:key=value,..., or ckr_target.schedule",
             'open(path, schedule="KIND:key=value,..."), or schedule'),
            ("ckr_open_desc.names where", "open(path, names=...) where"),
            ("option heads = N, and", 'options={"heads": N}, and'),
            ("only option fsdp_size can", 'only options["fsdp_size"] can'),
            ("an option named so", "an option named so")):
        expect(ck._said(said.encode()) == want, f"{said!r} is said as {ck._said(said.encode())!r}")
    text = (ROOT / "ckptresume.h").read_text()
    rows = text[text.index("ckr__fields[] = {"):]
    rows = rows[:rows.index("};")]
    plan = set(inspect.signature(ck.Plan.__init__).parameters) | {"tp", "pp", "dp", "ep", "cp", "ranks"}
    opens = set(inspect.signature(ck.Checkpoint.__init__).parameters)
    targets, descs = re.findall(r"ckr_target\.(?:topology\.)?(\w+)", rows), re.findall(r"ckr_open_desc\.(\w+)", rows)
    expect(len(targets) > 20 and set(targets) <= plan, f"no keywords: {set(targets) - plan}")
    expect(len(descs) > 4 and set(descs) <= opens, f"no keywords: {set(descs) - opens}")
    options = re.findall(r'"option (\w+)"', rows)
    expect(len(options) > 8 and set(options) == set(ck._OPTIONS), f"options {options}")


def tool(*args):
    p = subprocess.run([sys.argv[1], *map(str, args), "--json"], capture_output=True, text=True)
    try:
        return p.returncode, json.loads(p.stdout)
    except ValueError:
        return p.returncode, None


def plain(v):
    """As JSON has it."""
    if isinstance(v, dict):
        return {str(k): plain(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [plain(x) for x in v]
    if isinstance(v, float) and v != v:
        return "nan"
    return v


def case(path, scratch):
    name = str(path)
    rc, told = tool("inspect", path)
    if rc or told is None:
        try:
            ck.open(path).close()
            expect(rc == 1, f"{name}: the tool says {rc}, Python opens it")
        except ck.Error as e:
            expect(e.item and e.text, f"{name}: {e}")
        return
    with ck.open(path) as run:
        expect((run.dialect, run.step, run.files, run.bytes) == (told["dialect"], told["progress"]["step"],
                                                                 told["files"], told["bytes"]), f"{name}: {run}")
        expect(run.progress == told["progress"], f"{name}: {run.progress}")
        expect(run.topology == told["topology"], f"{name}: {run.topology}")
        _, each = tool("digest", path)
        if each and "tensors" in each:
            have = [(t.name, t.slot, t.dtype, list(t.shape)) for t in run.tensors]
            expect(have == [(t["name"], t["slot"], t["dtype"], t["shape"]) for t in each["tensors"]],
                   f"{name}: tensors")
            total, by = run.digest()
            expect(total == each["digest"] and list(by.values()) == [t["digest"] for t in each["tensors"]],
                   f"{name}: digest")
        hyper = [{k: v for k, v in g["hyper"].items() if "<" not in str(v)} for g in run.groups]
        want = [{k: v for k, v in g["hyper"].items() if k in h} for g, h in zip(told["groups"], hyper)]
        expect(plain(hyper) == want and [g["params"] for g in run.groups] == [g["params"] for g in told["groups"]],
               f"{name}: groups")
        expect([(s.kind, s.position) for s in run.schedules] == [(s["kind"], s["position"]) for s in told["schedules"]],
               f"{name}: schedules")
        expect([x["kind"] for x in run.streams] == [x["kind"] for r in told["rng"] for x in r["streams"]],
               f"{name}: streams")
        _, planned = tool("plan", path)
        if planned and "verdict" in planned:
            with run.plan() as plan:
                have = plan.dict()
                expect("ckr_" not in re.sub("ckr_(ckpt|plan|rng)_[a-z]+", "", str([have["report"], have["settings"]])),
                       f"{name}: a plan in C's names")
                expect({"from", "to"} <= set(have), f"{name}: {sorted(have)}")
                same = {k: plain(have[k]) == planned[k] for k in set(have) & set(planned) - {
                    "settings", "report", "peak_bytes"}}
                expect(all(same.values()), f"{name}: plan, {same}")
                expect([e["code"] for e in have["report"]] == [e["code"] for e in planned["report"]], f"{name}: report")
        _, checked = tool("check", path)
        if checked and "sound" in checked:
            have = run.check()
            keys = "sound", "bytes_read", "tensor_bytes", "uncovered_bytes", "nonfinite"
            expect([have[k] for k in keys] == [checked[k] for k in keys], f"{name}: check")
        boxes(name, path, run, scratch)


def boxes(name, path, run, scratch):
    """A middle box of some tensors, against all of it; and lists without NumPy."""
    for t in [t for t in run.tensors if t.shape and all(t.shape) and t.dtype in ck._NUMPY][:3]:
        try:
            whole = t.numpy()
        except ck.Error as e:
            expect(e.item == "CKR_E_DCP_TRANSFORM", f"{name}: {e}")      # compressed: not undone here
            continue
        start = [s // 3 for s in t.shape]
        count = [max(1, s // 2) for s in t.shape]
        box = t.numpy(start, count)
        expect((box == whole[tuple(slice(a, a + n) for a, n in zip(start, count))]).all() or box.dtype.kind in "fc",
               f"{name}: box of {t}")
        expect(whole.nbytes == 0 or t.torch().numpy().tobytes() == whole.tobytes(), f"{name}: torch's {t}")
        if whole.dtype.kind == "f" and whole.size < 5000 and whole.dtype.itemsize >= 4:
            expect(struct.pack("d", float(whole.flat[0])) == struct.pack("d", flat(t.tolist())), f"{name}: list of {t}")


def flat(x):
    while isinstance(x, list):
        x = x[0]
    return x


def converts(scratch):
    """A plan is refused, a conversion proves itself, progress comes, a bad call is an error with its item."""
    src = ROOT / "tests/data/nanotron/tp1_pp2_dp1_tied/ckpt"
    seen = []
    with ck.open(src, progress=lambda done, total: seen.append((done, total))) as run:
        receipt = run.convert(scratch / "out", tp=1, pp=1)
        expect(receipt["digest"] == run.digest()[0] and seen and seen[-1][0] == seen[-1][1], f"receipt {receipt}")
        with run.plan(tp=3) as plan:
            expect(plan.verdict == "refused" and any(e["severity"] == "error" for e in plan.report), f"{plan}")
            try:
                plan.write(scratch / "no")
                expect(False, "a refused plan was written")
            except ck.Error as e:
                expect(e.item == "CKR_E_PLAN_REFUSED", f"{e.item}")
        t = run.tensors[0]
        for what, bad in (("box", lambda: t.numpy([10**9] * len(t.shape), [1] * len(t.shape))),
                          ("name", lambda: run["no such"]), ("file", lambda: ck.open(scratch / "nothing")),
                          ("size", lambda: run.plan(tq=2)), ("dialect", lambda: run.plan("nonesuch"))):
            try:
                bad()
                expect(False, f"{what}: no error")
            except (ck.Error, KeyError, TypeError) as e:
                expect(str(e), what)
        lr = run.schedules[0].values(run.step + 1)[0][0]
        expect(abs(lr - run.groups[0]["hyper"]["lr"]) < 1e-12, f"LR {lr}")
        decided = run.plan(sets={"lr": 1e-4})
        expect(decided.schedule.values(decided.resume_at)[0][0] == decided.groups[0]["hyper"]["lr"] != lr, "decided LR")
    with ck.open(scratch / "out") as run:
        expect(run.digest()[0] == receipt["digest_written"] and run.topology["pp"] == 1, f"{run.topology}")
    try:
        run.digest()
        expect(False, "a closed checkpoint was read")
    except ValueError:
        expect(True, "")
    p = subprocess.run([sys.executable, str(ROOT / "examples/ckptresume.py"), str(src)], capture_output=True, text=True)
    expect(p.returncode == 0 and "nanotron" in p.stdout, p.stdout + p.stderr)


def same(a, b):
    """Names and bytes of two directories."""
    def of(d):
        return {p.relative_to(d): p.read_bytes() for p in Path(d).rglob("*") if p.is_file()}
    return of(a) == of(b)


def parts(scratch):
    """Parts by processes of their own, one of them cancelled and going on; a commit too early; one that goes on."""
    src = ROOT / "tests/data/nanotron/tp2_pp1_dp1/ckpt"
    whole, out = scratch / "whole", scratch / "parts"

    def run(stop=False, **how):
        with ck.open(src, progress=lambda done, total: not stop) as x:
            return x.convert(out, tp=1, **how)

    with ck.open(src) as x:
        want = x.convert(whole, tp=1)
    for stop, item, how in ((True, "CKR_E_CANCELLED", {"part": (1, 3)}), (False, "CKR_E_PART_NUMBER", {"part": (3, 3)}),
                            (False, "CKR_E_PART_MISSING", {"commit": 3})):
        try:
            run(stop, **how)
            expect(False, f"{how}: no {item}")
        except ck.Error as e:
            expect(e.item == item and e.remedy or stop, f"{how}: {e.item}, not {item}")
    for i in (2, 0, 1):
        expect(run(part=(i, 3), go_on=i == 1) is None and not out.exists(), f"part {i}")
    expect(run(commit=3) == want and same(whole, out), "three parts")
    out = scratch / "on"
    expect(run(go_on=True) == want and same(whole, out), "one that can go on")
    out = scratch / "begun"
    with ck.open(src) as x, x.plan(tp=1) as plan:
        plan.begin(out, 1, 77)
        try:
            plan.write_part(out, 0, 1, nonce=78)
            expect(False, "another nonce")
        except ck.Error as e:
            expect(e.item == "CKR_E_PART_ELSEWHERE", f"{e.item}")
        plan.write_part(out, 0, 1, nonce=77)
        expect(plan.commit(out, 1) == want and same(whole, out), "begun")


def cases(folder):
    """Directories called ckpt, else each entry, as the tool recognises it or not."""
    folder = Path(folder)
    found = sorted(p for p in folder.rglob("ckpt") if p.is_dir())
    return found or sorted(folder.iterdir()) if folder.is_dir() else [folder]


def main():
    with tempfile.TemporaryDirectory() as d:
        scratch = Path(d)
        layout(scratch)
        enums()
        words()
        converts(scratch)
        parts(scratch)
        folders, few = sys.argv[3:], None
        if folders[:1] == ["--few"]:
            few, folders = int(folders[1]), folders[2:]
        for folder in folders:
            for path in cases(folder)[:few]:
                case(path, scratch)
    return end()


sys.exit(main())
