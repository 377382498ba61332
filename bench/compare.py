#!/usr/bin/env python3
"""Times Kvasir and its peers on the same work, in turn, and prints the ratios.

    python3 -m venv peers && peers/bin/pip install llama-cpp-python ik-llama-cpp-python numpy
    bench/compare.py --peers peers/bin/python [--model smollm2-135m-instruct] [--tests pp512,tg64@0,tg32@2048]
                     [--rounds 5] [--threads 2] [--engines llama,ik] [--json]

A round runs every engine once over all tests, each test once to warm up and once timed, so that the engines meet the same disturbances of a
shared machine. The table has the median over the rounds (and the spread), and the ratio to the better peer: the median of the rounds'
own ratios. What the tests mean: bench/peers.py.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
KVASIR = str(ROOT / "kvasir")


def model_file(model):
    """The file of a model named by path or by name."""
    if pathlib.Path(model).is_file():
        return model
    listed = json.loads(subprocess.run([KVASIR, "ls", "--json"], check=True, capture_output=True, text=True).stdout)
    return f"{listed['directory']}/{model}.gguf"


def run_kvasir(a, tests):
    done = subprocess.run([KVASIR, "bench", "--model", a.model, "--tests", ",".join(tests), "--threads", str(a.threads), "--reps", "1",
                           "--json"], check=True, stdout=subprocess.PIPE, text=True)
    return {t["test"]: t for t in json.loads(done.stdout)["tests"]}


def run_peer(a, engine, tests):
    """Rates by test; a test at which the peer fails is missing. One process a test, so that a crash costs that test alone."""
    rates = {}
    for test in tests:
        done = subprocess.run([a.peers, str(ROOT / "bench/peers.py"), "--engine", engine, "--model", model_file(a.model), "--threads",
                               str(a.threads), "--tests", test, "--reps", "1"], capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.strip():
            rates[test] = json.loads(done.stdout.splitlines()[-1])
    return rates


def spread(values):
    return f"{statistics.median(values):.1f} ({min(values):.0f}-{max(values):.0f})" if values else "fails"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--peers", required=True, help="a Python that has the peers installed")
    ap.add_argument("--model", default="smollm2-135m-instruct")
    ap.add_argument("--tests", default="pp512,tg64@0,tg32@2048")
    ap.add_argument("--engines", default="llama,ik")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--json", action="store_true")
    a = ap.parse_args()
    tests, peers = a.tests.split(","), a.engines.split(",")
    rounds = []
    for i in range(a.rounds):
        print(f"round {i + 1} of {a.rounds}", file=sys.stderr)
        rounds.append({"kvasir": run_kvasir(a, tests), **{p: run_peer(a, p, tests) for p in peers}})
    rows = []
    for test in tests:
        rates = {e: [r[e][test]["median"] for r in rounds if test in r[e]] for e in ("kvasir", *peers)}
        ratios = [r["kvasir"][test]["median"] / max(r[p][test]["median"] for p in peers if test in r[p])
                  for r in rounds if any(test in r[p] for p in peers)]
        percent = statistics.median(r["kvasir"][test]["percent"] for r in rounds)
        rows.append({"test": test, "rates": rates, "ratio": statistics.median(ratios) if ratios else None, "percent": percent})
    if a.json:
        print(json.dumps({"model": a.model, "threads": a.threads, "rounds": a.rounds, "rows": rows}))
        return
    print(f"| {a.model} | kvasir | {' | '.join(peers)} | ratio to the better | kvasir, % of limit |")
    print("| --- |" + " ---: |" * (len(peers) + 3))
    for r in rows:
        cells = " | ".join(spread(r["rates"][e]) for e in ("kvasir", *peers))
        print(f"| {r['test']} | {cells} | {r['ratio']:.2f} | {r['percent']:.0f} |" if r["ratio"] else f"| {r['test']} | {cells} | | {r['percent']:.0f} |")


if __name__ == "__main__":
    main()
