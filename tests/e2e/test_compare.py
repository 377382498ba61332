"""bench/compare.py with peers whose speeds are known, and the data of bench/plot.py's figure."""
import argparse
import json
import stat
import subprocess
import sys

import pytest

from program import ROOT

sys.path.insert(0, str(ROOT / "bench"))
import compare  # noqa: E402
import plot  # noqa: E402

MODEL = ROOT / "tests/data/tiny/llama-gqa.gguf"
PEER = """#!{python}
import json, os, sys
words = sys.argv[2:]
a = dict(zip(words[::2], words[1::2]))
open({log!r}, "a").write(a["--engine"] + " " + a["--tests"] + "\\n")
if a["--engine"] == "ik" and a["--tests"].startswith("tb"):
    os.abort()
print(json.dumps({{"test": a["--tests"], "median": {{"llama": 2.0, "ik": 4.0}}[a["--engine"]]}}))
"""


@pytest.fixture
def peers(tmp_path):
    """A program that takes the place of a Python with peers, and the list of what it was asked for."""
    program, log = tmp_path / "peers", tmp_path / "log"
    program.write_text(PEER.format(python=sys.executable, log=str(log)))
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    return program, log


def run(peers, *words, rounds=2):
    out = peers[0].parent / "out.json"
    done = subprocess.run([sys.executable, ROOT / "bench/compare.py", "--peers", peers[0], "--rounds", str(rounds), "--json", out, *words],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(out.read_text())


def test_ratios_to_the_better_peer(peers):
    table, done = run(peers, "--tests", "pp8,tb2x2@8", MODEL)
    assert done["rounds"] == 2 and [m["model"] for m in done["models"]] == [str(MODEL)]
    prompt, batch = done["models"][0]["rows"]
    assert prompt["rates"]["llama"] == [2, 2] and prompt["rates"]["ik"] == [4, 4]
    assert prompt["ratios"] == [v / 4 for v in prompt["rates"]["kvasir"]]
    assert len(prompt["percent"]) == len(prompt["limit"]) == 2
    assert batch["ratios"] == [v / 2 for v in batch["rates"]["kvasir"]], "the peer that aborts is no peer"
    assert batch["rates"]["ik"] == []
    assert "| pp8 |" in table and "| 2 (2-2) | aborts |" in table


def test_engines_take_turns_and_an_engine_that_aborts_is_left_out(peers):
    run(peers, "--tests", "pp8,tb2x2@8", MODEL)
    assert peers[1].read_text().splitlines() == ["llama pp8", "ik pp8", "llama tb2x2@8", "ik tb2x2@8",
                                                 "llama pp8", "ik pp8", "llama tb2x2@8"]


def test_openvino_has_a_ratio_of_its_own():
    engines = [argparse.Namespace(name=n) for n in ("kvasir", "llama", "ik", "openvino")]
    own = [{"median": 12, "percent": 1, "limit": 2}, {"median": 18, "percent": 1, "limit": 2}]
    peers = {"llama": [{"median": 2}, {"median": 2}], "ik": [{"median": 3}, None], "openvino": [{"median": 6}, {"median": 6}]}
    row = compare.row_of("tb2x2@8", {"kvasir": own, **peers}, engines)
    assert row["ratios"] == [4, 9] and row["openvino_ratios"] == [2, 3]
    assert compare.row_of("pp5", {"kvasir": own, "llama": peers["llama"], "ik": peers["ik"]}, engines)["openvino_ratios"] == []


def test_what_stands_beside_a_shared_prefix():
    assert compare.peer_test("sp16x4@2048+16") == "tb16x4@2048"
    assert [compare.peer_test(t) for t in ("pp5", "tg5@6", "tb1x2@3", "xx5")] == ["pp5", "tg5@6", "tb1x2@3", None]
    llama = compare.Peer(argparse.Namespace(peers="python", threads=1), "llama")
    assert compare.row_of("xx5", {"kvasir": []}, [llama])["rates"] == {"llama": None}
    assert compare.rate_cell(None) == "-" and compare.rate_cell([]) == "aborts"


def test_ranges_as_kvasir_writes_them_out():
    assert compare.expand("pp8,tg2@16..50") == ["pp8", "tg2@16", "tg2@32", "tg2@50"]
    assert compare.expand("tb4x1..2@8..16") == ["tb4x1@8", "tb4x1@16", "tb4x2@8", "tb4x2@16"]
    assert compare.expand("tb4x7..7@16,pp5") == ["tb4x7@16", "pp5"]


def test_every_model_of_the_table_has_the_tests_of_the_table():
    for tests in (*compare.TESTS.values(), compare.OTHER_TESTS):
        assert all(compare.peer_test(t) for t in compare.expand(tests))


def test_lines_of_the_figure():
    rows = [{"test": t, "rates": {"kvasir": k, "llama": p}} for t, k, p in (
        ("tg8@2048", [50, 70, 60], [20, 20, 20]), ("tg8@512", [90], [30]), ("tb8x4@256", [200], []), ("tb8x1@256", [100], None),
        ("pp512", [1], [1]))]
    assert plot.lines(rows, "context") == {"kvasir": [(512, 90), (2048, 60)], "llama": [(512, 30), (2048, 20)]}
    assert plot.lines(rows, "batch") == {"kvasir": [(1, 100), (4, 200)]}
