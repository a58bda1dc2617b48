"""The start of training: short for nearly all tests, and whole for those that say how good a model is."""

from contextlib import contextmanager

from sasgp.training import fit_encoder, initialise

WHOLE = fit_encoder.FIT_STEPS  # the package's own
SHORT = 30  # a fit of a few rows takes a tenth of a second then, not half of one


def shorten_every_start():
    """Let the encoder's first fit, to a projection, take few steps in all tests. `whole_start` undoes it."""
    fit_encoder.FIT_STEPS = SHORT


@contextmanager
def whole_start():
    """As many steps as a user's fit takes."""
    before, fit_encoder.FIT_STEPS = fit_encoder.FIT_STEPS, WHOLE
    try:
        yield
    finally:
        fit_encoder.FIT_STEPS = before


def shorten_start(monkeypatch, steps):
    """Let the encoder's first fit, to a projection or a layout, and that of kernel and noise take so many steps."""
    for name in ("FIT_STEPS", "LAYOUT_STEPS", "LAYOUT_EPOCHS"):
        monkeypatch.setattr(fit_encoder, name, steps)
    monkeypatch.setattr(initialise, "SETTLE_STEPS", steps)
