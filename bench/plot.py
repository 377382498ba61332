#!/usr/bin/env python3
"""Draws tokens/s against context and against batch, Kvasir and its peers in one picture, from what bench/compare.py measured.

    python3 -m venv plot && plot/bin/pip install matplotlib
    bench/compare.py --peers peers/bin/python --json sweep.json --tests tg16@128..8192,tb16x1..32@256 smollm2-135m-instruct
    plot/bin/python bench/plot.py sweep.json --out docs/speed.svg

tgN@D tests are the points of the left side, tbNxB@D those of the right one; medians of the rounds. Text stays text, and the background
transparent, with colours that can be read on white and on black.
"""
import argparse
import json
import pathlib
import re
import statistics

PATTERNS = {"context": r"tg\d+@(\d+)", "batch": r"tb\d+x(\d+)@\d+"}
STYLES = {"kvasir": ("Kvasir", "#e4572e", "o"), "llama": ("llama.cpp", "#2e86ab", "s"), "ik": ("ik_llama.cpp", "#5f9e4b", "^"),
          "openvino": ("OpenVINO GenAI", "#9b6bb3", "D")}
INK = "#808080"


def lines(rows, kind):
    """{engine: [(x, tokens/s)]} with x ascending; an engine without a point has no line."""
    out = {}
    for row in rows:
        m = re.fullmatch(PATTERNS[kind], row["test"])
        for engine, rates in row["rates"].items() if m else ():
            if rates:
                out.setdefault(engine, []).append((int(m[1]), statistics.median(rates)))
    return {engine: sorted(points) for engine, points in out.items()}


def draw(axes, data, label, log):
    for engine, points in data.items():
        name, colour, marker = STYLES[engine]
        axes.plot(*zip(*points), marker=marker, markersize=4, linewidth=2 if engine == "kvasir" else 1.3, color=colour, label=name)
    if log:
        ticks = sorted({x for points in data.values() for x, _ in points})
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [str(x) for x in ticks])
        axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel(label, color=INK)
    axes.grid(True, color=INK, alpha=0.25, linewidth=0.6)
    axes.tick_params(colors=INK)
    for side, spine in axes.spines.items():
        spine.set_color(INK)
        spine.set_visible(side in ("left", "bottom"))


def figure(model, rows):
    from matplotlib import pyplot
    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "kvasir", "font.family": ["DejaVu Sans", "sans-serif"], "font.size": 9})
    fig, (left, right) = pyplot.subplots(1, 2, figsize=(8, 3), layout="constrained")
    fig.patch.set_alpha(0)
    for axes, kind, label, log in ((left, "context", "tokens of context, one sequence", False),
                                   (right, "batch", "sequences at once", True)):
        axes.patch.set_alpha(0)
        draw(axes, lines(rows, kind), label, log)
    left.set_xlim(left=0)
    fig.get_layout_engine().set(wspace=0.06)
    left.set_ylabel("tokens/s", color=INK)
    right.set_ylabel("tokens/s, all sequences", color=INK)
    handles = {label: handle for axes in (left, right) for handle, label in zip(*axes.get_legend_handles_labels())}
    fig.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=len(handles), frameon=False, labelcolor=INK, title=model,
               title_fontproperties={"weight": "bold"}).get_title().set_color(INK)
    return fig


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("json", help="what compare.py --json wrote")
    ap.add_argument("--out", required=True)
    ap.add_argument("--model", help="which of the file's models (default: the first)")
    a = ap.parse_args()
    models = {m["model"]: m["rows"] for m in json.loads(pathlib.Path(a.json).read_text())["models"]}
    model = a.model or next(iter(models))
    if not (lines(models[model], "context") and lines(models[model], "batch")):
        ap.error(f"{a.json} has no tgN@D or no tbNxB@D tests of {model}")
    figure(model, models[model]).savefig(a.out, metadata={"Date": None})


if __name__ == "__main__":
    main()
