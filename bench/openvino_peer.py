#!/usr/bin/env python3
"""Times OpenVINO GenAI's continuous batching on the tbNxB@D tests of `kvasir bench`, after its model was made from the same GGUF file.

    python3 -m venv ov && ov/bin/pip install openvino-genai 'optimum-intel[openvino]' gguf accelerate
    ov/bin/python bench/openvino_peer.py export MODEL.gguf DIRECTORY [--weights int8|int4]
    ov/bin/python bench/openvino_peer.py run --model DIRECTORY --tests tb16x4@256 [--threads 2] [--kv u8|f16] [--reps 3]

export dequantizes the file's weights and quantizes them anew, as OpenVINO computes with its own types; it makes no tokenizer, since tests
are given as ids. tbNxB@D: N steps of B sequences of D tokens each; a step gives each sequence one token, taken greedily. Prints one JSON object a line, as bench/peers.py does.
"""
import argparse
import json
import pathlib
import statistics
import tempfile
import time

from peers import Rng, parse

MAX_BATCHED_TOKENS = 1 << 16


def export(a):
    import transformers
    from optimum.intel import OVModelForCausalLM, OVWeightQuantizationConfig
    file = pathlib.Path(a.gguf)
    model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        bits = OVWeightQuantizationConfig(bits=int(a.weights[3:]))
        OVModelForCausalLM.from_pretrained(folder, export=True, quantization_config=bits).save_pretrained(a.directory)


def run_once(pipeline, test, n_vocab):
    """Tokens/s of one test; the prompts go before in as many steps as they take."""
    import numpy as np
    import openvino
    import openvino_genai
    kind, n, n_seq, depth = parse(test)
    assert kind == "tb", f"{test}: only tbNxB@D is timed here"
    assert n_seq * depth <= MAX_BATCHED_TOKENS, f"{test}: the contexts don't fit one step, so sequences would not start together"
    config = openvino_genai.GenerationConfig(max_new_tokens=n + 1, ignore_eos=True)
    handles = []
    for seq in range(n_seq):
        rnd = Rng(1234 + seq)
        ids = np.array([[rnd(n_vocab) for _ in range(depth)]], np.int64)
        handles.append(pipeline.add_request(seq, openvino.Tensor(ids), config))
    while not all(h.can_read() for h in handles):
        pipeline.step()
    start = time.perf_counter()
    for _ in range(n):
        pipeline.step()
    seconds = time.perf_counter() - start
    assert not pipeline.has_non_finished_requests(), "a step gave some sequence no token"
    return n * n_seq / seconds


def run(a):
    import openvino_genai
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size, scheduler.max_num_seqs, scheduler.max_num_batched_tokens = 2, 256, MAX_BATCHED_TOKENS
    scheduler.dynamic_split_fuse = False
    pipeline = openvino_genai.ContinuousBatchingPipeline(a.model, scheduler, "CPU", {
        "INFERENCE_NUM_THREADS": a.threads, "KV_CACHE_PRECISION": a.kv})
    n_vocab = json.loads((pathlib.Path(a.model) / "config.json").read_text())["vocab_size"]
    for test in a.tests.split(","):
        rates = [run_once(pipeline, test, n_vocab) for _ in range(a.reps + 1)][1:]
        print(json.dumps({"engine": "openvino", "model": a.model, "test": test, "kv": a.kv, "threads": a.threads,
                          "median": round(statistics.median(rates), 2), "min": round(min(rates), 2), "max": round(max(rates), 2),
                          "reps": a.reps}), flush=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = ap.add_subparsers(required=True)
    p = commands.add_parser("export")
    p.add_argument("gguf")
    p.add_argument("directory")
    p.add_argument("--weights", choices=["int8", "int4"], default="int8")
    p.set_defaults(do=export)
    p = commands.add_parser("run")
    p.add_argument("--model", required=True)
    p.add_argument("--tests", default="tb16x4@256,tb16x16@256")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--kv", choices=["u8", "f16"], default="u8")
    p.add_argument("--reps", type=int, default=3)
    p.set_defaults(do=run)
    a = ap.parse_args()
    a.do(a)


if __name__ == "__main__":
    main()
