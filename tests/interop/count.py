"""What the scripts here count: a line per failure, then `N passed, N failed`. Nothing counted is a failure."""

passed = failed = 0


def expect(ok, what):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    if not ok:
        print(f"FAIL {what}", flush=True)
    return bool(ok)


def end():
    """The last line; the script's exit code."""
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0
