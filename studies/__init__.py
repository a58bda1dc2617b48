"""Studies: everything that is measured with sasgp and quoted in the docs. They are not part of the wheel.

    python -m studies list                              # every study, one line each
    python -m studies paper table1 --seeds 0 1 2        # the paper's tables and figures
    python -m studies questions oil-flow                # smaller questions that the docs answer
    python -m studies benchmarks floor                  # how fast, as ratios measured side by side
    python -m studies data infinite-mnist --rows 1000000 --out big.npy

Run these commands from the project's root. A study is a list of runs, and every run leaves one JSON record in
studies/results. README.md in this folder has the details.
"""
