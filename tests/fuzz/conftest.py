"""A test with an argument `seed` runs for some seeds, few of them unless `pytest --seeds N tests/fuzz` asks for N."""


def pytest_generate_tests(metafunc):
    if "seed" in metafunc.fixturenames:
        few = getattr(metafunc.module, "FEW", 20)
        metafunc.parametrize("seed", range(metafunc.config.getoption("--seeds") or few))
