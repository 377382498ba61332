"""kvasir bench: the tests it knows, the forms it prints, and that its hashes are bits of the logits."""
import csv
import io
import json

from program import SMOLLM, fails, works, works_json

KEYS = {"test", "kv", "threads", "median", "min", "max", "reps", "limit", "percent"}


def bench(*options):
    return works_json("bench", "--model", SMOLLM, "--reps", "1", *options)


def test_every_kind_of_test():
    done = bench("--tests", "pp24,tg3@5,tb2x3@4,sp2x3@20+4", "--threads", "2", "--kv", "f16")
    assert [t["test"] for t in done["tests"]] == ["pp24", "tg3@5", "tb2x3@4", "sp2x3@20+4"]
    for t in done["tests"]:
        assert KEYS <= set(t) and t["kv"] == "f16" and t["threads"] == 2 and t["reps"] == 1
        assert 0 < t["min"] <= t["median"] <= t["max"] and t["limit"] > 0
        assert abs(t["percent"] - t["median"] / t["limit"] * 100) < 0.2
    assert done["read_gb_s"] > 1 and done["int8_gmac_s"] > 1


def test_hashes_do_not_depend_on_how_the_work_is_cut():
    def hashes(*options):
        return [t["hash"] for t in bench("--tests", "pp40,tg4@20,tb2x3@20,sp2x3@300+5", *options)["tests"]]
    want = hashes("--threads", "2")
    assert want == hashes("--threads", "1") == hashes("--threads", "3", "--block-size", "8") == hashes("--no-split") == hashes("--no-cascade") == hashes("--chunk", "7")
    assert len(set(want)) == 4
    assert hashes("--kv", "f32") != want


def test_a_shared_prefix_is_counted_once():
    own, shared = bench("--tests", "tb2x4@512,sp2x4@500+12")["tests"]
    assert abs(own["bytes_per_token"] - shared["bytes_per_token"] - 500 * 3 / 4 * 23040) < 1


def test_bytes_of_a_token_are_weights_and_cache():
    short, long = bench("--tests", "tg2@0,tg2@1000")["tests"]
    assert abs(long["bytes_per_token"] - short["bytes_per_token"] - 1000 * 23040) < 1
    assert 90e6 < short["bytes_per_token"] < 110e6


def test_without_a_cache():
    done = bench("--no-cache")
    assert done["tests"] == [] and [p["tokens"] for p in done["no_cache"]] == [16, 32, 64, 128]
    assert done["no_cache"][-1]["uncached_s"] > 2 * done["no_cache"][-1]["cached_s"]


def test_forms():
    words = ("bench", SMOLLM, "--tests", "tg2@0", "--reps", "1", "--output")
    rows = list(csv.DictReader(io.StringIO(works(*words, "csv").stdout)))
    assert len(rows) == 1 and KEYS <= set(rows[0]) and float(rows[0]["median"]) > 0
    table = works(*words, "md").stdout
    assert "| tg2@0 | f16 |" in table and "roofline" in table
    assert json.loads(works(*words, "json").stdout)["tests"][0]["test"] == "tg2@0"


def test_bad_command_lines():
    for tests in ("pp", "pp0", "tg5", "tg5@", "tb2x@3", "tb2x0@3", "pp5x", "sp2x2@5", "sp2x0@5+1", "xx5", "pp-5", ",", ""):
        fails(2, "bench", SMOLLM, "--tests", tests, says="test")
    fails(2, "bench", says="name a model")
    fails(1, "bench", "no-such-model", says="no-such-model")
