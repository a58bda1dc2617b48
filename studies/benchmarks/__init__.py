"""How fast, as ratios measured side by side in one run: `python -m studies benchmarks floor`.

What is compared with other libraries needs the extra `bench`. `measure` lets contenders take turns, and `step` makes
the training step that is timed.
"""
