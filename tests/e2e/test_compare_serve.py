"""bench/compare_serve.py, with Kvasir in the place of its peer."""
import json
import subprocess
import sys

from program import KVASIR, ROOT, SMOLLM


def test_two_servers_by_turns(tmp_path):
    out = tmp_path / "rounds.json"
    done = subprocess.run([sys.executable, ROOT / "bench/compare_serve.py", "--rounds", "1", "--clients", "2", "--work", "chat", "--port",
                           "18399", "--temperature", "1", "--json", out, "--peer", f"other={KVASIR} serve {SMOLLM} -t 1 --port {{port}}"],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for name in "kvasir", "other":
        figures = json.loads(out.read_text())[0][name]["chat"]
        assert figures["errors"] == 0 and figures["tok_s"] > 1 and 0 < figures["itl_p50"] <= figures["itl_p99"]
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines() if line.startswith("|")]
    assert [(row[0].strip(), row[1].strip()) for row in rows[2:]] == [("chat", "kvasir"), ("chat", "other")]
    assert "2 clients, temperature 1, unfiltered" in done.stdout
    assert float(rows[2][6]) > 0 and rows[2][7].strip().startswith("1/") and rows[3][6].strip() == ""


def test_a_server_that_ends_is_told():
    done = subprocess.run([sys.executable, ROOT / "bench/compare_serve.py", "--kvasir", "false", "--rounds", "1"], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 1 and "ended with status 1" in done.stderr
