"""Freed memory stays while asked to, and goes back afterwards."""

import resource
import sys
from pathlib import Path

import pytest
import torch

from sasgp.training import malloc

linux = pytest.mark.skipif(malloc._glibc() is None, reason="needs glibc")


def faults(steps):
    """Page faults of a step that makes ten tensors of 8 MB: 20 480 pages."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(steps):
        blocks = [torch.ones(2_000_000) for _ in range(10)]
        del blocks
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / steps


@linux
def test_pages_are_cleared_once():
    with malloc.keep_freed_memory():
        faults(2)
        # The least of several: the heap may still grow by a block, where others hold some of its parts
        assert min(faults(5) for _ in range(6)) < 100


@linux
def test_memory_goes_back_afterwards():
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    with malloc.keep_freed_memory():
        faults(2)
        inside = resident()
    assert inside - resident() > 50_000_000


def test_thresholds_are_those_of_glibc_afterwards(monkeypatch):
    # glibc's own: blocks of up to 32 MiB come from the heap, and twice as much may stay free at its end
    said = []

    class Library:
        def mallopt(self, parameter, value):
            said.append((parameter, value))
            return parameter != -3 or value <= 32 << 20  # as older versions do

        def malloc_trim(self, pad):
            said.append(("trim", pad))

    monkeypatch.setattr(malloc, "_glibc", Library)
    with malloc.keep_freed_memory():
        assert said == [(-3, 1 << 30), (-3, 32 << 20), (-1, 1 << 30)]
    assert said[3:] == [(-3, 32 << 20), (-1, 64 << 20), ("trim", 0)]


def test_elsewhere_it_does_nothing(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    malloc._glibc.cache_clear()
    try:
        with malloc.keep_freed_memory():
            assert malloc._glibc() is None
    finally:
        malloc._glibc.cache_clear()
