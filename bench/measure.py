"""What the benchmarks in Python share: a process measured, a row of their tables. It imports none of the stand-ins for
torch that gen.py makes."""

import os, subprocess, sys, tempfile, time
from pathlib import Path


def resident(pid):
    """The most memory so far, in bytes; that of wait4 begins with what this process has. 0: not known."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
        return int(text.split("VmHWM:")[1].split()[0]) * 1024
    except (OSError, IndexError):
        return 0


def measured(command):
    """(The clock's seconds, the processor's), the most memory, exit status, its message."""
    begin, memory, pid = time.monotonic(), 0, 0
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        while pid == 0:
            time.sleep(0.002)
            memory = max(memory, resident(child.pid))
            pid, status, use = os.wait4(child.pid, os.WNOHANG)
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read().decode(errors="replace")
    seconds = time.monotonic() - begin
    if not memory:
        memory = use.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return (seconds, use.ru_utime + use.ru_stime), memory, child.returncode, text


def row(what, value, unit, limit, least=False):
    """value: one, or (that of the clock or the median, another); least: the lesser is held against the limit."""
    value, other = value if isinstance(value, tuple) else (value, value)
    over = f"<= {limit:.4g} {unit} | {(min(value, other) if least else value) / limit:.2f}" if limit else "| "
    print(f"| {what} | {min(value, other):.3g} {unit} | {value:.3g} {unit} | {over} |", flush=True)
