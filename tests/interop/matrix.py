"""matrix.py TOOL [--only NAME,..] [--table FILE]: the LR that `lr` prints is the one that the real framework uses.

Each framework of matrix_torch.py and matrix_big.py saves runs with each of its schedulers in the middle. Each cell
converts one under other flags, builds the coming run from the report's "settings" alone, lets the framework load what
was written, and goes past the new schedule's end. Update by update and group by group the LR has to be what `lr`
says: equal within 1e-12, or within 5 % where an approx entry says that the framework rounds, or null in `lr`. A
refused conversion (exit 1) writes nothing. A curve that only the trainer's code knows may be kept, not changed; once
it is told (--schedule), splice has to work.

Prints a line per failure, the table (EXIT: an exit code above 1), why cells were refused, and `N passed, N failed`.
"""

import argparse, contextlib, importlib, io, json, re, shutil, subprocess, sys, tempfile, traceback
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Saved:
    path: Path  # what the tool is given
    told: list  # flags that tell the curve where the files do not: ["--schedule", ...]
    world: int  # processes
    done: int  # updates
    horizon: int  # last update of the schedule
    groups: int
    lr: float  # a base LR to play with
    # the framework's own, and: in_code (nothing can tell the curve), ticks (of the schedule's clock in an update),
    # worlds (the other numbers of processes), batch (another number of samples an update), always (flags of each call)
    extra: dict = field(default_factory=dict)


class Framework:
    name = None
    optional = False  # may be missing: a line instead of a failure

    def available(self):
        """None, or why it cannot be shown."""

    def cases(self):
        """Names of its schedulers."""

    def save(self, case, dir):
        """A run of `case`, saved in the middle under `dir` by the framework's own code: Saved."""

    def resume(self, saved, out, settings, world, steps):
        """The LRs that it uses after loading `out`, rows[update][group]. Built as the saved run's own code builds it,
        changed only by `settings` and `world`. No more rows than `steps`; fewer where it stops at its end."""


def cells(saved):
    """{name: (flags, last update of the coming schedule, whether they change the schedule)}"""
    end, far = saved.horizon, 2 * saved.horizon
    total = lambda updates: ["--set", f"total_steps={round(updates * saved.extra.get('ticks', 1))}"]
    policy = lambda name, *more: ([*total(far), "--lr-policy", name, *more], far, True)
    length = lambda updates: ([*total(updates), "--max-lr-jump", 10], updates, True)
    worlds = saved.extra.get("worlds") or [2 * saved.world, *[saved.world // 2][: saved.world // 2]]
    return {
        "recover": (["--mode", "recover"], end, False),
        "keep": (["--lr-policy", "keep"], end, False),
        "target": policy("target", "--max-lr-jump", 10),
        "splice": policy("splice"),
        "stretch": policy("stretch"),
        "rewarm": policy("rewarm", "--rewarm-steps", 4),
        "lr": (["--set", f"lr={saved.lr * 1.5!r}"], end, False),
        "0.lr": (["--set", f"0.lr={saved.lr * 0.7!r}"], end, False),
        "longer": length(end * 7 // 5),
        "shorter": length(max(end * 4 // 5, saved.done + 2)),
        **({"batch": (["--set", f"batch_size={saved.extra['batch']}"], end, False)} if "batch" in saved.extra else {}),
        **{f"dp {world}": (["--dp", world], end, False) for world in sorted(worlds)},
    }


class Refused(Exception):
    """Exit 1."""


class Broken(Exception):
    """Another exit than 0 and 1."""


def ask(*args):
    """The tool's document. Refused: the first error's code and reason."""
    p = subprocess.run([TOOL, *map(str, args), "--json"], capture_output=True, text=True, timeout=60)
    if p.returncode not in (0, 1):
        raise Broken(f"{args[0]}: exit {p.returncode}: {(p.stdout + p.stderr).strip()}")
    doc = json.loads(p.stdout)
    if p.returncode == 0:
        return doc
    errors = [f"{e['code']}: {e['reason']}" for e in doc["report"] if e["severity"] == "error"]
    raise Refused(errors[0] if errors else "no error entry")


@contextlib.contextmanager
def quiet():
    """Frameworks talk."""
    noise = io.StringIO()
    with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise):
        yield


def reason_of(e):
    own = isinstance(e, (AssertionError, Refused, Broken))
    return (str(e) if own else traceback.format_exception_only(e)[-1]).strip()[:400]


def rounds(report):
    """Whether an approx entry says that the LR is only near: approx entries on names or data do not."""
    about = re.compile(r"\b(lr|schedule|clock|tick|warm)", re.I)
    return any(e["severity"] == "approx" and about.search(f"{e['subject']} {e['reason']}") for e in report)


def compare(said, used, may_round, done):
    """equal, null, or the largest relative difference where rounding was said."""
    worst, nulls = 0.0, 0
    for update, row in enumerate(used, done + 1):
        assert len(said[update]) == len(row), f"update {update}: {len(row)} groups, lr says {len(said[update])}"
        for group, (want, have) in enumerate(zip(said[update], row)):
            if want is None:
                nulls += 1
            elif not abs(want - have) <= 1e-12 * abs(have) + 1e-18:
                off = abs(want - have) / max(abs(have), 1e-18)
                near = may_round and off < 0.05
                assert near, f"update {update} group {group}: lr says {want!r}, it is {have!r}"
                worst = max(worst, off)
    return "null" if nulls else f"{worst:.1e}" if worst else "equal"


def run_cell(framework, saved, told, flags, end, out):
    """(what the table shows, why)"""
    first, last = saved.done + 1, end * 3 // 2
    told = [*saved.extra.get("always", []), *told]
    processes = flags[0] == "--dp"
    try:
        doc = ask("convert", saved.path, out, *told, *flags)
        # `lr` counts in updates: the number of processes is nothing to it
        said = ask("lr", saved.path, *told, *([] if processes else flags), "--from", first, "--to", last)
    except Refused as e:
        assert not any(out.parent.iterdir()), f"refused, and something was written: {e}"
        return "refused", str(e)
    said = {row["step"]: row["lr"] for row in said["after"]}
    assert all(u in said for u in range(first, last + 1)), f"lr tells {len(said)} of updates {first} to {last}"
    with quiet():
        world = flags[1] if processes else saved.world
        used = framework.resume(saved, out, doc.get("settings", []), world, last - saved.done)
    shown = compare(said, used, rounds(doc["report"]), saved.done)
    assert len(used) >= end - saved.done, f"the framework stops after update {saved.done + len(used)}, not {end}"
    return shown, ""


def run_case(framework, case, tmp, table):
    """Adds {row: {cell: (what the table shows, why)}}."""
    name = f"{framework.name} {case}"
    try:
        with quiet():
            saved = framework.save(case, tmp)
    except Exception as e:
        table[name] = {"recover": ("FAIL", f"not saved: {reason_of(e)}")}
        return
    for told in [saved.told, []] if saved.told else [[]]:
        hidden = saved.extra.get("in_code") or (saved.told and not told)
        row = table.setdefault(name + " (untold)" * (bool(saved.told) and not told), {})
        for cell, (flags, end, changes) in cells(saved).items():
            # OUT keeps the name that the framework looks for
            out = tmp / f"out-{len(table)}-{len(row)}" / saved.path.name
            out.parent.mkdir()
            try:
                shown, why = run_cell(framework, saved, told, flags, end, out)
                wanted = "refused" if changes else "null" if cell == "keep" else shown
                assert not hidden or shown == wanted, f"{shown}, and nothing tells the curve: {why}"
                # where target is refused too, the schedule has no such length
                works = cell != "splice" or shown != "refused" or row["target"][0] == "refused"
                assert not told or works, f"refused, and the curve was told: {why}"
            except Exception as e:
                shown, why = "EXIT" if isinstance(e, Broken) else "FAIL", reason_of(e)
            row[cell] = shown, why
            shutil.rmtree(out.parent)


def show(table):
    names = list(dict.fromkeys(cell for row in table.values() for cell in row))
    names.sort(key=lambda name: int(name[3:]) if name.startswith("dp ") else 0)
    wide = max(map(len, table), default=0)
    line = lambda head, words: " ".join([f"{head:{wide}}", *(f"{w:>7}" for w in words)])
    lines = [line("", names), *(line(k, [row.get(n, "-")[0] for n in names]) for k, row in table.items())]
    why = {}
    for name, row in table.items():
        for cell, (shown, text) in row.items():
            if shown == "refused":
                why.setdefault(text, []).append(f"{name}: {cell}")
    lines += [f"refused {len(at)} ({at[0]}{', ..' * (len(at) > 1)}): {text}" for text, at in why.items()]
    return "\n".join(lines)


def main():
    global TOOL
    ap = argparse.ArgumentParser()
    ap.add_argument("tool")
    ap.add_argument("--only", help="names of frameworks, a comma between")
    ap.add_argument("--table", type=Path)
    args = ap.parse_args()
    TOOL = str(Path(args.tool).resolve())
    table, missing = {}, 0
    for module in ("matrix_torch", "matrix_big"):
        for framework in [make() for make in importlib.import_module(module).FRAMEWORKS]:
            if args.only and framework.name not in args.only.split(","):
                continue
            reason = framework.available()
            if reason:
                print(f"{framework.name}: {reason}{', passed over' * framework.optional}", flush=True)
                missing += not framework.optional
                continue
            for case in framework.cases():
                with tempfile.TemporaryDirectory(prefix="ckr-matrix-") as tmp:
                    run_case(framework, case, Path(tmp), table)
    shown = [(name, cell, *got) for name, row in table.items() for cell, got in row.items()]
    failed = [s for s in shown if s[2] in ("FAIL", "EXIT")]
    for name, cell, _, why in failed:
        print(f"{name}: {cell}: {why}")
    print(show(table))
    if args.table:
        args.table.write_text(show(table) + "\n")
    print(f"{len(shown) - len(failed)} passed, {len(failed) + missing} failed")
    return 1 if failed or missing or not shown else 0


if __name__ == "__main__":
    sys.exit(main())
