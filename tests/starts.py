"""A short start of training, for tests that do not need a good one."""

from sasgp.training import fit_encoder, initialise


def shorten_start(monkeypatch, steps):
    """Let the encoder's first fit, to a projection or a layout, and that of kernel and noise take so many steps."""
    for name in ("FIT_STEPS", "LAYOUT_STEPS", "LAYOUT_EPOCHS"):
        monkeypatch.setattr(fit_encoder, name, steps)
    monkeypatch.setattr(initialise, "SETTLE_STEPS", steps)
