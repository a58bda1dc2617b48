"""How fast, as ratios measured side by side in one run.

    python -m benchmarks                       # all of them, then the figures and tables of docs/performance.md
    python -m benchmarks floor autograd        # some
    python -m benchmarks --quick               # all, small, in about two minutes: do they run?
    python -m benchmarks scale --file big.npy  # rows from a file of your own
    python -m benchmarks figures               # figures and tables alone, from the JSONs

From the project's root; what is compared with other libraries needs the extra `bench`. A benchmark is a module with
`run(quick=…)`, which returns numbers, and `table(result)`, which makes Markdown of them: what the terminal shows and
what the docs show are the same text. Numbers go to benchmarks/results/NAME.json, those of --quick to a folder in it.
"""
