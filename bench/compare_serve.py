#!/usr/bin/env python3
"""Servers side by side, by turns, under one load: `kvasir serve` and others that speak OpenAI's interface.

    bench/compare_serve.py --peer "llama=llama-server -m FILE -c 32768 --parallel 16 -t 2 -fa on --port {port}"

In each round every server is started, warmed up by one short request, given each workload, and ended. The workloads (streamed, always of
full length, the same for everybody; greedy, or drawn from the whole vocabulary at --temperature):

  mix      prompts of 50 to 700 words, 16 to 96 tokens out, all different, from --clients clients
  agents   one prompt of 1,500 words in front of 60 words of each request's own, 32 tokens out
  chat     --clients conversations at once: 200 words, then turns of 80 words and the answer so far, 48 tokens out; later turns are counted

Prints medians over the rounds: output tokens/s over the whole load, time to the first token, time between tokens, and the ratio to the best
peer. Needs aiohttp.
"""
import argparse
import asyncio
import json
import os
import pathlib
import random
import shlex
import signal
import statistics
import subprocess
import sys
import time
import urllib.request

import aiohttp

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORDS = ("table column index query page leaf branch root commit log buffer lock river stone lamp garden window letter paper north "
         "south winter summer bread water silver copper engine signal harbor market bridge forest valley teacher doctor artist "
         "farmer sailor early late").split()


def words(rnd, n):
    return " ".join(rnd.choice(WORDS) for _ in range(n))


def percentile(values, p):
    return sorted(values)[min(len(values) - 1, int(p * len(values)))] if values else float("nan")


class Load:
    """One workload on one server: what came, and when."""

    def __init__(self, url, a):
        self.url, self.model = url + "/v1/completions", a.model
        # Other servers filter by default: what OpenAI has no field for is turned off in theirs.
        self.sampling = {"temperature": a.temperature, "top_p": 1, "top_k": 0, "min_p": 0, "seed": a.seed}
        self.reset()

    def reset(self):
        self.begin = time.perf_counter()
        self.tokens, self.first, self.gaps, self.errors = 0, [], [], []

    async def ask(self, client, prompt, n):
        body = {"model": self.model, "prompt": prompt, "max_tokens": n, "stream": True, "ignore_eos": True,
                "stream_options": {"include_usage": True}, **self.sampling}
        begin, last, parts = time.perf_counter(), None, []
        try:
            async with client.post(self.url, json=body) as response:
                response.raise_for_status()
                async for line in response.content:
                    if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                        continue
                    event = json.loads(line[6:])
                    self.tokens += (event.get("usage") or {}).get("completion_tokens", 0)
                    if event.get("choices"):
                        now = time.perf_counter()
                        self.first.append(now - begin) if last is None else self.gaps.append(now - last)
                        last = now
                        parts.append(event["choices"][0].get("text", ""))
        except (aiohttp.ClientError, json.JSONDecodeError) as error:
            self.errors.append(repr(error))
        return "".join(parts)

    async def queue(self, client, jobs, n_clients):
        left = iter(jobs)

        async def worker():
            for prompt, n in left:
                await self.ask(client, prompt, n)
        await asyncio.gather(*[worker() for _ in range(n_clients)])

    async def mix(self, client, rnd, a):
        await self.queue(client, [(words(rnd, rnd.randint(50, 700)), rnd.randint(16, 96)) for _ in range(2 * a.clients)], a.clients)

    async def agents(self, client, rnd, a):
        shared = words(rnd, 1500)
        await self.queue(client, [(shared + "\n" + words(rnd, 60), 32) for _ in range(a.clients)], a.clients)

    async def chat(self, client, rnd, a):
        talks = [words(rnd, 200) for _ in range(a.clients)]
        for turn in range(3):
            if turn == 1:
                self.reset()
            talks = [t + "\n" + words(rnd, 80) + "\n" for t in talks]
            talks = [t + said for t, said in zip(talks, await asyncio.gather(*[self.ask(client, t, 48) for t in talks]))]

    def figures(self):
        return {"tok_s": self.tokens / (time.perf_counter() - self.begin), "ttft_p50": percentile(self.first, .5),
                "itl_p50": percentile(self.gaps, .5), "itl_p99": percentile(self.gaps, .99), "errors": len(self.errors)}


async def measure(url, a):
    """Figures by workload."""
    found = {}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=3600), connector=aiohttp.TCPConnector(limit=0)) as client:
        await Load(url, a).ask(client, "warm up", 4)
        for work in a.work:
            load = Load(url, a)
            await getattr(load, work)(client, random.Random(a.seed), a)
            found[work] = load.figures()
    return found


def wait_until_ready(process, url):
    for _ in range(1200):
        if process.poll() is not None:
            sys.exit(f"a server ended with status {process.returncode} before it was ready")
        try:
            if urllib.request.urlopen(url + "/health", timeout=5).status == 200 and urllib.request.urlopen(url + "/v1/models", timeout=5):
                return
        except OSError:
            time.sleep(.25)
    sys.exit(f"no server was ready at {url} within five minutes")


def one_server(command, a):
    url = f"http://127.0.0.1:{a.port}"
    process = subprocess.Popen(shlex.split(command.replace("{port}", str(a.port))), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_ready(process, url)
        return asyncio.run(measure(url, a))
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()


def table(rounds, names, a):
    def middle(name, work, key):
        return statistics.median(r[name][work][key] for r in rounds)
    print("| workload | server | output tokens/s | first token, p50 s | between tokens, p50 / p99 s | errors | ratio of tokens/s | "
          "of first token |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for work in a.work:
        for name in names:
            peers = [n for n in names if n != "kvasir"]
            faster = slower = ""
            if name == "kvasir" and peers:
                best = max(middle(n, work, "tok_s") for n in peers)
                soonest = min(middle(n, work, "ttft_p50") for n in peers)
                faster, slower = f"{middle(name, work, 'tok_s') / best:.1f}", f"1/{soonest / middle(name, work, 'ttft_p50'):.1f}"
            print(f"| {work} | {name} | {middle(name, work, 'tok_s'):.1f} | {middle(name, work, 'ttft_p50'):.2f} | "
                  f"{middle(name, work, 'itl_p50'):.3f} / {middle(name, work, 'itl_p99'):.3f} | "
                  f"{sum(r[name][work]['errors'] for r in rounds)} | {faster} | {slower} |")
    print(f"\n{a.clients} clients, {f'temperature {a.temperature:g}, unfiltered' if a.temperature else 'greedy'}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default="smollm2-135m-instruct", help="name or file for kvasir, and the model's id in requests")
    p.add_argument("--kvasir", default=str(ROOT / "kvasir"), help="the program")
    p.add_argument("--options", default="-t 2", help="more options of kvasir serve")
    p.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND", help="another server; {port} in it becomes the port")
    p.add_argument("--work", action="append", choices=["mix", "agents", "chat"], help="default: all three")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--clients", type=int, default=16)
    p.add_argument("--temperature", type=float, default=0, help="0 = greedy")
    p.add_argument("--seed", type=int, default=1, help="of prompts, lengths and draws")
    p.add_argument("--port", type=int, default=8399)
    p.add_argument("--json", metavar="FILE", help="every round's figures")
    a = p.parse_args()
    a.work = a.work or ["mix", "agents", "chat"]
    servers = {"kvasir": f"{a.kvasir} serve {a.model} {a.options} --port {{port}}"} | dict(peer.split("=", 1) for peer in a.peer)
    rounds = []
    for i in range(a.rounds):
        rounds.append({name: one_server(command, a) for name, command in servers.items()})
        print(f"round {i + 1} of {a.rounds}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps(rounds, indent=1))
    table(rounds, list(servers), a)


if __name__ == "__main__":
    main()
