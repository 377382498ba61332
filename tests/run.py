#!/usr/bin/env python3
"""Runs the test suites that it is given and counts: the last line is `N passed, N failed`.

    tests/run.py --unit PROGRAM... --fuzz PROGRAM... --e2e FOLDER

Unit programs are cmocka's (counted test by test through TAP), a fuzzer counts as one test, pytest counts its own.
A program that crashes, times out or fails without saying where is one failure; so is a suite in which no test ran.
"""
import argparse
import concurrent.futures
import functools
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

import environment

PROGRAM_SECONDS = 600


class Result:
    def __init__(self, passed=0, failed=0, skipped=0, output=""):
        self.passed, self.failed, self.skipped, self.output = passed, failed, skipped, output

    def __str__(self):
        text = f"{self.passed} passed, {self.failed} failed"
        return text + f", {self.skipped} skipped" if self.skipped else text


def run(command, seconds, **variables):
    """Exit status (a timeout is None) and everything that was printed."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=seconds, env={**os.environ, **variables})
        return done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as late:
        return None, (late.stdout or b"").decode(errors="replace") + f"\nno end after {seconds} s\n"


@functools.cache
def without_randomization():
    """ThreadSanitizer of older compilers can't live with the address randomization of newer kernels."""
    prefix = ["setarch", platform.machine(), "-R"]
    return prefix if run([*prefix, "true"], 10)[0] == 0 else []


def run_unit(program):
    command = [*without_randomization(), program] if "/tsan" in program else [program]
    status, output = run(command, PROGRAM_SECONDS, CMOCKA_MESSAGE_OUTPUT="TAP")
    skipped = len(re.findall(r"^not ok \d+ # SKIP", output, re.M))
    failed = len(re.findall(r"^not ok \d+ ", output, re.M)) - skipped
    passed = len(re.findall(r"^ok \d+ ", output, re.M))
    planned = sum(map(int, re.findall(r"^1\.\.(\d+)$", output, re.M)))
    if failed == 0 and (status != 0 or passed + skipped < max(planned, 1)):
        failed = 1
        output += f"\n{program}: exit status {status} after {passed + skipped} of {planned} tests\n"
    return Result(passed, failed, skipped, output)


def run_fuzz(program, seconds):
    name = os.path.basename(program).removeprefix("fuzz_")
    corpus, grown, found = (pathlib.Path(p) for p in (f"tests/fuzz/corpus/{name}", f"build/fuzz/corpus/{name}", "build/fuzz/found"))
    if not corpus.is_dir():
        return Result(failed=1, output=f"{corpus}: the fuzzer has no corpus\n")
    for folder in (grown, found):
        folder.mkdir(parents=True, exist_ok=True)
    status, output = run([program, f"-max_total_time={seconds}", "-seed=1", "-timeout=20", "-rss_limit_mb=2048",
                          "-verbosity=0", "-print_final_stats=1", f"-artifact_prefix={found}/{name}-", str(grown), str(corpus)],
                         seconds + 300)
    units = re.search(r"number_of_executed_units: ([1-9]\d*)", output)
    return Result(passed=1, output=output) if status == 0 and units else Result(failed=1, output=output)


def run_programs(title, programs, function):
    """The programs, as many at a time as there are processors; prints a line for each."""
    total = Result()

    def timed(program):
        began = time.monotonic()
        return function(program), time.monotonic() - began

    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        started = {pool.submit(timed, program): program for program in programs}
        for future in concurrent.futures.as_completed(started):
            result, seconds = future.result()
            print(f"  {title} {started[future]}: {result} ({seconds:.1f} s)", flush=True)
            if result.failed:
                print(result.output, flush=True)
            total.passed += result.passed
            total.failed += result.failed
            total.skipped += result.skipped
    return total


def run_pytest(where):
    report = pathlib.Path(tempfile.mkdtemp()) / "e2e.xml"
    chosen = [] if os.environ.get("TEST_FULL") else ["-m", "not slow"]
    status = subprocess.run([sys.executable, "-m", "pytest", "-q", "-c", "tests/pytest.ini", "--rootdir=.",
                             f"--junitxml={report}", *chosen, where],
                            stdin=subprocess.DEVNULL).returncode
    if not report.exists():
        return Result(failed=1)
    counts = [suite.attrib for suite in xml.etree.ElementTree.parse(report).iter("testsuite")]
    total, failed, errors, skipped = (sum(int(c[key]) for c in counts) for key in ("tests", "failures", "errors", "skipped"))
    failed += errors
    if status != 0 and failed == 0:
        failed = 1
    return Result(max(total - failed - skipped, 0), failed, skipped)


def main():
    environment.settle()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--unit", nargs="*", metavar="PROGRAM")
    parser.add_argument("--fuzz", nargs="*", metavar="PROGRAM")
    parser.add_argument("--fuzz-seconds", type=int, default=5)
    parser.add_argument("--e2e", metavar="FOLDER")
    options = parser.parse_args()

    suites = []
    if options.unit is not None:
        suites.append(("unit", lambda: run_programs("unit", options.unit, run_unit)))
    if options.fuzz is not None:
        suites.append(("fuzz", lambda: run_programs("fuzz", options.fuzz, lambda p: run_fuzz(p, options.fuzz_seconds))))
    if options.e2e is not None:
        suites.append(("e2e", lambda: run_pytest(options.e2e)))

    total = Result()
    for name, suite in suites:
        began = time.monotonic()
        result = suite()
        if result.passed + result.failed == 0:
            print(f"{name}: no test ran")
            result.failed = 1
        print(f"{name}: {result} in {time.monotonic() - began:.0f} s", flush=True)
        total.passed += result.passed
        total.failed += result.failed
        total.skipped += result.skipped
    print(total)
    return 1 if total.failed or not suites else 0


if __name__ == "__main__":
    sys.exit(main())
