"""The paper's tables and figures, made with the public API: `sasgp reproduce table1`.

`experiments` says what is run, `running` runs it, a JSON file each, and `published` has the paper's numbers to stand
beside. `ablation` and `pca` are models that exist for comparison only.
"""
