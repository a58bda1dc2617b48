"""The paper's tables and figures: `python -m studies paper table1`.

`listing` says what is run, `training` does it, and `published` has the paper's numbers to stand beside ours. `results`
finds the records, `page` and `figures` show them. `ablation`, `pca` and `peers` are models to compare with.
"""
