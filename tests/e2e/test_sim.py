"""kvasir sim cache: hit rates against caches written plainly here, over random traces; published traces where they are."""
import gzip
import json
import os
import pathlib
import random
import time

import pytest
from program import fails, works, works_json

POLICIES = ("lru", "lfu", "fifo", "slru", "priority", "cost", "flat-lru")


def flat_lru(requests, capacity):
    """Blocks one by one, in a list, the longest unused first."""
    cached, hits = [], 0
    for _, ids in requests:
        for block in ids:
            if block in cached:
                hits += 1
                cached.remove(block)
            elif capacity and len(cached) == capacity:
                cached.pop(0)
            cached.append(block)
    return hits


def tree_lru(requests, capacity, salted=False):
    """Prefixes, each with the time of its last use; of those that no other one continues, the longest unused goes."""
    used, hits = {}, 0
    for now, (salt, ids) in enumerate(requests):
        path = [(salt if salted else 0, *ids[:i + 1]) for i in range(len(ids))]
        have = 0
        while have < len(path) and path[have] in used:
            have += 1
        hits += have
        for prefix in path[:have]:
            used[prefix] = now
        for prefix in path[have:]:
            if capacity and len(used) >= capacity:
                inner = {p[:-1] for p in used}
                leaves = [p for p in used if p not in inner and p not in path]
                if not leaves:
                    break
                del used[min(leaves, key=used.get)]
            used[prefix] = now
    return hits


def random_requests(seed, n):
    """Sessions that take turns, begin alike, and grow; an id stands for a block and all before it."""
    rng, names, sessions, requests = random.Random(seed), {}, [], []
    for _ in range(n):
        if not sessions or rng.random() < 0.3:
            sessions.append([rng.randrange(3) for _ in range(rng.randrange(4))])
        text = rng.choice(sessions[-6:])
        text.extend(rng.randrange(4) for _ in range(rng.randrange(4)))
        requests.append((0, [names.setdefault(tuple(text[:i + 1]), len(names) * 2**33 - 5) for i in range(len(text))]))
    return requests


def write(path, requests):
    lines = [json.dumps({"timestamp": i, "input_length": 1, "output_length": 1, "hash_ids": ids})
             for i, (_, ids) in enumerate(requests)]
    (gzip.open if path.suffix == ".gz" else open)(path, "wt").write("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("seed", range(6))
def test_random_traces(tmp_path, seed):
    requests = random_requests(seed, 150)
    path = write(tmp_path / ("t.jsonl.gz" if seed % 2 else "t.jsonl"), requests)
    for capacity in (1, 7, 20, 45, 100, 0):
        for policy, plain in (("lru", tree_lru), ("flat-lru", flat_lru)):
            got = works_json("sim", "cache", path, "--blocks", capacity, "--policy", policy)
            blocks = sum(len(ids) for _, ids in requests)
            assert (got["policy"], got["capacity"]) == (policy, capacity)
            assert (got["requests"], got["blocks"]) == (len(requests), blocks)
            assert got["hits"] == plain(requests, capacity), (policy, capacity)
            assert got["hit_rate"] == pytest.approx(got["hits"] / blocks, abs=1e-6)


def test_conversations(tmp_path):
    """Ids of a conversation are its own; requests of all of them in order of time."""
    rng, path = random.Random(3), tmp_path / "t.jsonl"
    lines, requests = [], []
    for salt in range(5):
        ids, turns = [], []
        for _ in range(12):
            ids = ids + list(range(len(ids), len(ids) + rng.randrange(4)))
            turns.append({"t": rng.random() * 100, "type": "n", "in": 1, "out": 1, "hash_ids": ids})
            requests.append((turns[-1]["t"], salt, ids))
        turns.append({"t": 1.0, "type": "subagent", "requests": []})
        lines.append(json.dumps({"id": f"c{salt}", "hash_id_scope": "local", "requests": turns}))
    path.write_text("\n".join(lines))
    requests = [(salt, ids) for _, salt, ids in sorted(requests)]
    for capacity in (10, 25, 50, 0):
        got = works_json("sim", "cache", path, "--blocks", capacity)
        assert got["hits"] == tree_lru(requests, capacity, salted=True)
    with path.open() as text:
        assert works_json("sim", "cache", "-", "--blocks", 50, text=text.read())["requests"] == len(requests)


def test_several_at_once(tmp_path):
    path = write(tmp_path / "t.jsonl.gz", random_requests(9, 200))
    words = ["sim", "cache", path, "-b", "10", "-b", "0.02k"] + [w for p in POLICIES for w in ("-p", p)]
    got = works_json(*words)
    assert [(r["policy"], r["capacity"]) for r in got] == [(p, c) for p in POLICIES for c in (10, 20)]
    for r in got:
        alone = works_json("sim", "cache", path, "-b", r["capacity"], "-p", r["policy"])
        assert {k: alone[k] for k in ("hits", "evicted", "blocks")} == {k: r[k] for k in ("hits", "evicted", "blocks")}
        assert 0 < r["hits"] < r["blocks"] and r["evicted"] > 0
    assert len({r["hits"] for r in got}) > 6, "policies differ"
    table = works(*words).stdout.splitlines()
    assert len(table) == 3 + len(got)
    for line, r in zip(table[3:], got):
        assert line.split()[:4] == [r["policy"], str(r["capacity"]), f"{r['hit_rate']:.4f}", str(r["hits"])]
    default = works_json("sim", "cache", path)
    assert (default["policy"], default["capacity"], default["evicted"]) == ("lru", 0, 0)


def test_wrong_words(tmp_path):
    path = write(tmp_path / "t.jsonl", random_requests(1, 3))
    fails(2, "sim", says="did you mean 'sim cache'?")
    fails(2, "sim", "cache", says="FILE is missing")
    fails(2, "sim", "tree", path, says="did you mean 'sim cache'?")
    fails(2, "sim", "cache", path, "--policy", "mru", says="flat-lru")
    for n in ("-1", "x", "1.5", "1e3", "10kk", "k", "1.2.3", "99999G"):
        fails(2, "sim", "cache", path, f"--blocks={n}", says="--blocks takes a number")
    fails(2, "sim", "cache", path, "--blocks=", says="--blocks takes N, which is empty here")
    assert works_json("sim", "cache", path, "--blocks", "1.5k")["capacity"] == 1500
    assert works_json("sim", "cache", path, "--blocks", "2M")["capacity"] == 2000000


def test_bad_traces(tmp_path):
    path = tmp_path / "t.jsonl"
    fails(1, "sim", "cache", path, says="No such file")
    fails(1, "sim", "cache", tmp_path, says="directory")
    for text, says in {
        "": "no requests",
        "\n \n": "no requests",
        '{"hash_ids": [1]}\n\n{"hash_ids": [1, "x"]}\n': "line 3: element 1 of hash_ids",
        '{"hash_ids": [1]}\n{"hash_ids": [1]': "line 2: column",
        '{"hash_ids": [1]}\n[]': "line 2: not a JSON object",
        '{"hash_ids": 1}': "line 1: a request needs hash_ids",
        '{"hash_ids": [99999999999999999999]}': "line 1",
        '{"hash_ids": [1]}\0': "line 1",
        '{"timestamp": [], "hash_ids": [1]}': "timestamp is no number",
        "[" * 100000: "line 1",
    }.items():
        path.write_text(text)
        assert str(path) in fails(1, "sim", "cache", path, says=says)
    whole = gzip.compress(b"".join(b'{"hash_ids": [%d, %d]}\n' % (i, i * i) for i in range(5000)))
    checksum, bomb = whole[:-8] + b"\0" * 4 + whole[-4:], gzip.compress(b'{"hash_ids": [' + b"1," * (33 << 20) + b"1]}", 1)
    for bad, says in ((whole[:-200], "after line"), (whole[:600] + b"\xff" * 20 + whole[620:], "line"),
                      (checksum, ": incorrect data check\n"), (bomb, "line 1: output would pass its limit")):
        path.write_bytes(bad)
        fails(1, "sim", "cache", path, says=says)
    path.write_bytes(whole)
    assert works_json("sim", "cache", path)["requests"] == 5000


# Published traces: where they are, KVASIR_TRACES says. Hit rates of one list are those of the literature.
PUBLISHED = {
    ("conversation", "flat-lru"): {"1k": .044, "10k": .211, "30k": .326, "50k": .355, "100k": .364, "0": .366},
    ("synthetic", "flat-lru"): {"1k": .082, "10k": .423, "30k": .624, "50k": .640, "100k": .640, "0": .640},
    ("conversation", "lru"): {"10k": .2116, "0": .3664},
    ("synthetic", "lru"): {"1k": .0841, "10k": .4239, "0": .6396},
}


@pytest.mark.parametrize("trace,policy", PUBLISHED)
def test_published_traces(trace, policy):
    folder = os.environ.get("KVASIR_TRACES")
    path = pathlib.Path(folder or "") / f"{trace}_trace.jsonl.gz"
    if not folder or not path.exists():
        pytest.skip("KVASIR_TRACES names no folder with the trace")
    for blocks, rate in PUBLISHED[trace, policy].items():
        got = works_json("sim", "cache", path, "--blocks", blocks, "--policy", policy)
        assert got["hit_rate"] == pytest.approx(rate, abs=.0005 if policy == "flat-lru" else .00005), blocks
        assert got["blocks_per_second"] > 1e6


def test_speed(tmp_path):
    """Far above a million blocks a second, the reading of the trace included."""
    path = write(tmp_path / "t.jsonl.gz", random_requests(5, 8000))
    began = time.monotonic()
    got = works_json("sim", "cache", path, "--blocks", "1k")
    assert got["blocks"] > 40000 and got["blocks_per_second"] > 1e6
    assert time.monotonic() - began < 20
