"""From a model and rows to a trained model: first numbers, the loop, checkpoints, several processes.

Private: names here may change in any release.
"""
