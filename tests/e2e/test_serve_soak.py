"""Thousands of requests over a pool a quarter of what they need, with clients that leave, bodies that are nonsense, and
deadlines: every answer that completes is the same bytes as undisturbed, no block is lost, memory stays flat."""
import asyncio
import contextlib
import json
import os
import random
import subprocess

import aiohttp

from program import KVASIR, ROOT, SMOLLM
from serving import Server

FULL = bool(os.environ.get("TEST_FULL"))
WORKERS = 24
N_KINDS = 16
WORDS = "memory cache block prefix token attention kernel river stone light garden window letter paper".split()


# The real model, and a tiny one whose tokens are bytes: more requests in the same time.
REAL = {"model": SMOLLM, "most_words": 120, "most_tokens": 100, "ctx": 512, "kv_memory": "12M",
        "short": "kvasir_tree_evicted_blocks_total"}
TINY = {"model": ROOT / "tests/data/tiny/llama-gqa.gguf", "most_words": 25, "most_tokens": 60, "ctx": 256,
        "kv_memory": "80K", "short": "kvasir_preemptions_total"}


def kinds(case):
    """What requests ask: prompts of a few families that part at random places."""
    rnd = random.Random(3)
    most = case["most_words"] * 3 // 4
    families = [[rnd.choice(WORDS) for _ in range(most)] for _ in range(4)]
    for i in range(N_KINDS):
        words = rnd.choice(families)[:rnd.randint(1, most)] + [rnd.choice(WORDS) for _ in range(rnd.randint(1, most // 3))]
        yield {"prompt": " ".join(words), "max_tokens": rnd.randint(1, case["most_tokens"]), "temperature": rnd.choice([0, 1, 1.5]),
               "seed": i, "n": rnd.choice([1, 1, 1, 3]), "ignore_eos": rnd.random() < .5, "cache_salt": rnd.choice(["a", "b"])}


BROKEN = [b"", b"{", b"\xff\xfe", b"[" * 3000, b'{"prompt": 7}', b'{"prompt": "x", "max_tokens": "many"}', b'{"prompt": "x", "n": -1}',
          json.dumps({"prompt": "word " * 3000}).encode()]


def resident_kib(server):
    with open(f"/proc/{server.process.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))


def texts(answer):
    return [(c["text"], c["finish_reason"]) for c in sorted(answer["choices"], key=lambda c: c["index"])]


async def whole(client, url, body):
    async with client.post(url, json=body) as response:
        assert response.status == 200, await response.text()
        return texts(await response.json())


async def stream(client, url, body, stop_after):
    """The whole answer by its events; None when the client leaves after stop_after of them."""
    parts, reasons, n = {}, {}, 0
    async with client.post(url, json={**body, "stream": True}) as response:
        assert response.status == 200, await response.text()
        async for line in response.content:
            if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
                continue
            n += 1
            if n == stop_after:
                return None
            event = json.loads(line[6:])
            assert "error" not in event, event
            for c in event["choices"]:
                parts[c["index"]] = parts.get(c["index"], "") + c["text"]
                reasons[c["index"]] = c["finish_reason"] or reasons.get(c["index"])
    return [(parts[i], reasons[i]) for i in sorted(parts)]


def late(got, expected):
    """What an answer has when its deadline passed, at whatever moment: a beginning of each text, or all of it."""
    assert len(got) == len(expected)
    for (text, reason), (whole_text, whole_reason) in zip(got, expected):
        assert reason in ("timeout", whole_reason)
        assert whole_text.startswith(text) if reason == "timeout" else text == whole_text


async def one(client, url, rnd, asked, expected, counts):
    what = rnd.random()
    if what < .08:
        async with client.post(url, data=rnd.choice(BROKEN)) as response:
            assert response.status == 400
            assert (await response.json())["error"]["message"]
        counts["refused"] += 1
        return
    i = rnd.randrange(N_KINDS)
    if what < .2:  # leaves before the answer
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(whole(client, url, {**asked[i], "ignore_eos": True}), .01 * rnd.random())
        counts["left"] += 1
    elif what < .5:
        answer = await stream(client, url, asked[i], rnd.randint(1, 60) if what < .35 else 0)
        assert answer is None or answer == expected[i]
        counts["streamed" if answer else "left"] += 1
    elif what < .53:
        async with client.post(url, json={**asked[i], "timeout": 1e-3}) as response:
            assert response.status == 200, await response.text()
            late(texts(await response.json()), expected[i])
        counts["late"] += 1
    else:
        assert await whole(client, url, asked[i]) == expected[i]
        counts["answered"] += 1


async def audit(client, server):
    """Again and again while the load goes on."""
    while True:
        async with client.get(server.url + "/v1/kv?audit=1") as response:
            assert (await response.json())["audit"] == "clean"
        await asyncio.sleep(.05)


async def load(server, asked, expected, n_requests):
    counts = {"refused": 0, "left": 0, "streamed": 0, "late": 0, "answered": 0}
    left = iter(range(n_requests))

    async def worker(k):
        rnd = random.Random(k)
        for _ in left:
            await one(client, server.url + "/v1/completions", rnd, asked, expected, counts)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=600)) as client:
        auditor = asyncio.create_task(audit(client, server))
        await asyncio.gather(*[worker(k) for k in range(WORKERS)])
        assert not auditor.done(), auditor.exception()
        auditor.cancel()
    return counts


def soak(case, n_requests, program=KVASIR, **environment):
    asked = list(kinds(case))
    with Server("--ctx", case["ctx"], "--threads", 2, "--kv-memory", case["kv_memory"], "--parallel", 8, "--queue", 256,
                model=case["model"], program=program, **environment) as s:
        expected = [texts(s.post("/v1/completions", body).json) for body in asked]
        for body, answer in zip(asked, expected):
            assert all(reason == "length" or (reason == "stop" and not body["ignore_eos"]) for _, reason in answer), answer
        counts = asyncio.run(load(s, asked, expected, n_requests // 5))
        s.idle()
        early = resident_kib(s)
        more = asyncio.run(load(s, asked, expected, n_requests - n_requests // 5))
        s.idle()
        assert s.metrics()[case["short"]] > 0  # the pool was short, as it shall be
        assert s.get("/v1/kv?audit=1").json["audit"] == "clean"
        if program == KVASIR:  # a sanitizer's own memory grows
            assert resident_kib(s) < early * 1.1 + 8192
        assert s.stop() == 0
    assert all(counts[k] + more[k] > 0 for k in counts), (counts, more)


def test_soak():
    soak(REAL, 2000 if FULL else 100)


def test_soak_of_many():
    soak(TINY, 100000 if FULL else 10000)


def test_soak_under_the_thread_sanitizer():
    """Of a build that ends when it finds a race."""
    made = subprocess.run(["make", "-j2", "VARIANT=tsan", "build/tsan/kvasir"], cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    soak(TINY, 10000 if FULL else 500, ROOT / "build/tsan/kvasir", TSAN_OPTIONS="halt_on_error=1:exitcode=66")
