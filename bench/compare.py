#!/usr/bin/env python3
"""Times Kvasir and its peers on the same work, in turn, and prints the ratios.

    python3 -m venv peers && peers/bin/pip install llama-cpp-python ik-llama-cpp-python numpy
    bench/compare.py --peers peers/bin/python [--rounds 5] [--threads 2] [--engines llama,ik] [--json FILE]
                     [--tests pp512,tg64@0,tg32@2048] [MODEL...]

A MODEL is a name or a file; without any it is both of the models that `make models` fetches. Without --tests each model has the tests that
docs/PERFORMANCE.md shows of it. tools/make_synthetic_llama.py makes a model of Llama-3.2-1B's shape.

A round takes each test in turn, and for a test one engine after the other, each in a process of its own, once to warm up and once timed:
so they meet the same disturbances of a shared machine. The table has the median over the rounds (and the spread), the ratio to the better
of llama.cpp and ik_llama.cpp (the median of the rounds' own ratios, and their spread), and the share of what the machine allows.
"aborts": the engine crashed or refused, and is left out from then on. "-": it has no such test.

What the tests mean, ranges such as tg16@512..8192 too: `kvasir help bench`. The peers have no spNxB@P+D, sequences that share a prefix of P
tokens: beside it stands their tbNxB@P, each sequence with a copy of its own.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
KVASIR = str(ROOT / "kvasir")
TESTS = {
    "smollm2-135m-instruct": "pp512,pp2048,tg64@0,tg32@2048,tg16@6000,tb16x4@256,tb16x8@256,tb16x16@256,sp16x16@2048+16",
    "gemma-3-270m": "pp512,pp2048,tg64@0,tg32@2048",
}
OTHER_TESTS = "pp512,tg32@0,tg32@4096"


def model_file(model):
    """The file of a model named by path or by name."""
    if pathlib.Path(model).is_file():
        return model
    listed = json.loads(subprocess.run([KVASIR, "ls", "--json"], check=True, capture_output=True, text=True).stdout)
    return f"{listed['directory']}/{model}.gguf"


def expand(tests):
    """The list with each range A..B written out: A, 2 A, 4 A, ... and B."""
    out = []
    for test in tests.split(","):
        m = re.search(r"(\d+)\.\.(\d+)", test)
        if not m:
            out.append(test)
            continue
        value, last = int(m[1]), int(m[2])
        values = [value]
        while 0 < values[-1] < last:
            values.append(min(2 * values[-1], last))
        for value in values:
            out += expand(f"{test[:m.start()]}{value}{test[m.end():]}")
    return out


def peer_test(test):
    """What a peer runs beside it; None = nothing compares."""
    if m := re.fullmatch(r"sp(\d+)x(\d+)@(\d+)\+\d+", test):
        return f"tb{m[1]}x{m[2]}@{m[3]}"
    return test if re.fullmatch(r"(pp\d+|tg\d+@\d+|tb\d+x\d+@\d+)", test) else None


def output_of(words):
    """What a program printed, or None where it failed; its last words go to stderr."""
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode == 0 and done.stdout.strip():
        return done.stdout
    said = done.stderr.strip().splitlines()
    print(f"  {' '.join(words[-8:])}: exit status {done.returncode}{': ' + said[-1] if said else ''}", file=sys.stderr)
    return None


class Kvasir:
    name = "kvasir"

    def __init__(self, a):
        self.threads = str(a.threads)

    def run(self, model, test):
        out = output_of([KVASIR, "bench", "--model", model, "--tests", test, "--threads", self.threads, "--reps", "1", "--json"])
        return out and json.loads(out)["tests"][0]

    def has(self, test):
        return True


class Peer:
    def __init__(self, a, name):
        self.name, self.words = name, [a.peers, str(ROOT / "bench/peers.py"), "--engine", name, "--threads", str(a.threads), "--reps", "1"]

    def run(self, model, test):
        out = output_of([*self.words, "--model", model_file(model), "--tests", peer_test(test)])
        return out and json.loads(out.splitlines()[-1])

    def has(self, test):
        return peer_test(test) is not None


class OpenVino:
    """Batches alone, of a model that bench/openvino_peer.py exported."""
    name = "openvino"

    def __init__(self, a):
        python, self.directory = a.openvino
        self.words = [python, str(ROOT / "bench/openvino_peer.py"), "run", "--threads", str(a.threads), "--reps", "1"]

    def run(self, model, test):
        out = output_of([*self.words, "--model", self.directory, "--tests", peer_test(test)])
        return out and json.loads(out.splitlines()[-1])

    def has(self, test):
        return (peer_test(test) or "").startswith("tb")


def measure(a, engines, model, tests):
    """results[test][engine] = one result a round; None from the round on in which it failed."""
    results = {test: {e.name: [] for e in engines if e.has(test)} for test in tests}
    for i in range(a.rounds):
        for test in tests:
            print(f"{model}: round {i + 1} of {a.rounds}, {test}", file=sys.stderr)
            for e in engines:
                of_engine = results[test].get(e.name)
                if of_engine is not None and None not in of_engine:
                    of_engine.append(e.run(model, test))
    return results


def row_of(test, results, engines):
    rates = {e.name: None if e.name not in results else [r["median"] for r in results[e.name] if r] for e in engines}
    own = [r for r in results["kvasir"] if r]
    def ratios(names):
        """Of each round, to the best of the named that has a figure of it."""
        best = [max((rates[n][i] for n in names if rates[n] and i < len(rates[n])), default=0) for i in range(len(own))]
        return [r["median"] / b for r, b in zip(own, best) if b]

    out = {"test": test, "rates": rates, "ratios": ratios([n for n in rates if n not in ("kvasir", "openvino")])}
    if "openvino" in rates:
        out["openvino_ratios"] = ratios(["openvino"])
    return {**out, "percent": [r["percent"] for r in own], "limit": [r["limit"] for r in own]}


def spread(values, digits):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def rate_cell(values):
    return "-" if values is None else spread(values, 0) if values else "aborts"


def print_table(model, rows, engines):
    kinds = {"ratios": "ratio to the better"}
    if any(e.name == "openvino" for e in engines):
        kinds["openvino_ratios"] = "ratio to openvino"
    print(f"| {model} | {' | '.join(e.name for e in engines)} | {' | '.join(kinds.values())} | kvasir, % of limit |")
    print("| --- |" + " ---: |" * (len(engines) + len(kinds) + 1))
    for r in rows:
        cells = " | ".join(rate_cell(r["rates"][e.name]) for e in engines)
        ratio = " | ".join(spread(r[k], 2) if r[k] else "-" for k in kinds)
        percent = f"{statistics.median(r['percent']):.0f}" if r["percent"] else "-"
        print(f"| {r['test']} | {cells} | {ratio} | {percent} |")
    print(flush=True)


def arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("models", nargs="*", metavar="MODEL", default=list(TESTS))
    ap.add_argument("--peers", required=True, help="a Python that has the peers installed")
    ap.add_argument("--tests", help="for every model")
    ap.add_argument("--engines", default="llama,ik")
    ap.add_argument("--openvino", nargs=2, metavar=("PYTHON", "DIRECTORY"),
                    help="time OpenVINO GenAI's batches too: a Python that has it, and what bench/openvino_peer.py exported")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--json", metavar="FILE", help="write every round's figures there")
    return ap.parse_args()


def main():
    a = arguments()
    engines = [Kvasir(a), *(Peer(a, name) for name in a.engines.split(","))]
    if a.openvino:
        engines.append(OpenVino(a))
    done = {"threads": a.threads, "rounds": a.rounds, "models": []}
    for model in a.models:
        tests = expand(a.tests or TESTS.get(model, OTHER_TESTS))
        results = measure(a, engines, model, tests)
        rows = [row_of(test, results[test], engines) for test in tests]
        print_table(model, rows, engines)
        done["models"].append({"model": model, "rows": rows})
        if a.json:
            pathlib.Path(a.json).write_text(json.dumps(done, indent=1))


if __name__ == "__main__":
    main()
