"""The mutator makes the changes that it says, the sources stay programs, and tests in forked processes notice them."""

import ast

import pytest

from studies import records
from studies.catalogue import finished, study
from studies.questions import mutants
from studies.questions.forked_tests import Server
from studies.questions.mutator import KINDS
from studies.questions.mutator import mutants as changes_of

CHANGES = {
    "arithmetic": [("a + b", "(a - b)"), ("a / b", "(a * b)"), ("a ** 2", "(a * 2)"), ("a & b", "(a | b)")],
    "drop": [("a + b", "a"), ("a + b", "b"), ("a - b", "a"), ("a * b", "b"), ("a / b", "a")],
    "sign": [("-a", "a")],
    "comparison": [("a < b", "(a <= b)"), ("a is None", "(a is not None)"), ("a in b", "(a not in b)")],
    "condition": [("b if a else c", "(c if a else b)"), ("not a", "a")],
    "logic": [("a and b", "(a or b)")],
    "constant": [("2", "3"), ("0.5", "1.0"), ("0.0", "1.0"), ("1e-6", "0.0"), ("True", "False")],
    "extreme": [("max", "min"), ("a.argmin", "a.argmax")],
}


@pytest.mark.parametrize(("kind", "before", "after"), [(kind, *one) for kind in CHANGES for one in CHANGES[kind]])
def test_each_kind_of_change(kind, before, after):
    source = f"σ = 'before'; found = {before}\n"
    found = [one for one in changes_of(source) if (one.kind, one.before) == (kind, before)]
    assert f"σ = 'before'; found = {after}\n" in [one.apply(source) for one in found]


def test_conditions_and_results_of_functions():
    source = "def f(a):\n    if a:\n        return a\n    while a > 0:\n        a -= 1\n    return None\n"
    found = {(one.kind, one.apply(source)) for one in changes_of(source)}
    assert ("condition", source.replace("if a:", "if (not a):")) in found
    assert ("condition", source.replace("a > 0", "(not a > 0)")) in found
    assert ("comparison", source.replace("a > 0", "(a >= 0)")) in found
    assert ("return", source.replace("return a\n", "return\n")) in found
    assert ("arithmetic", source.replace("a -= 1", "a += 1")) in found
    assert not any("return None" not in changed for _, changed in found)


def test_what_is_written_for_people_is_left_alone():
    source = '''"""1 + 1."""
from math import pi
__all__ = ["f" + "g"]
BLOCK = 2 * 1024  # rows
SIZES, MORE = (1, 2), -3

@cache(size=3)
def f(x: Tensor[2] = None) -> tuple[int, 4]:
    """2 + 2."""
    known: dict[str, 5] = {}
    if x < y:
        raise ValueError("a" + f"{x + 1}")
    warnings.warn("b", stacklevel=2)
'''
    assert {(one.kind, one.before) for one in changes_of(source)} == {("condition", "x < y"), ("comparison", "x < y")}


def test_a_change_of_another_source_is_refused():
    (one,) = changes_of("a = b < c\n")
    with pytest.raises(ValueError, match="this is another source"):
        one.apply("a = bb < c\n")


@pytest.mark.parametrize("module", mutants.TESTS)
def test_changed_modules_are_programs_and_other_ones(module):
    source = (mutants.SOURCE / module).read_text()
    tree = ast.dump(ast.parse(source))
    for one in mutants.drawn(module):
        assert one.kind in KINDS
        assert ast.dump(ast.parse(one.apply(source))) != tree
        compile(one.apply(source), module, "exec")


def test_all_modules_of_the_rooms_have_their_tests():
    rooms = [path for room in ("gp", "models", "training") for path in (mutants.SOURCE / room).rglob("*.py")]
    known = {path.relative_to(mutants.SOURCE).as_posix() for path in rooms if path.name != "__init__.py"}
    assert known <= set(mutants.TESTS)
    for file in {file for files in mutants.TESTS.values() for file in files}:
        assert (records.ROOT / "tests" / file).exists(), file


def test_a_forked_process_says_which_test_failed_and_ends_those_that_do_not(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "own.py").write_text("def half(x):\n    return x / 2\n")
    (tmp_path / "test_own.py").write_text(
        "import own, pytest\n"
        "@pytest.mark.parametrize('x', [0, 2, 4])\n"
        "def test_half(x):\n    assert own.half(x) == x / 2\n"
        "def test_last():\n    assert own.half(2) != 7, 'seven'\n"
    )
    server = Server()
    try:
        found = [server.run(tmp_path, "test_own.py", 1)]
        for body in ("7", "x * 2", "[1 for _ in iter(int, 1)]"):
            (tmp_path / "src" / "own.py").write_text(f"def half(x):\n    return {body}\n\n\n# {body}\n")
            found.append(server.run(tmp_path, "test_own.py", 1))
    finally:
        server.close()
    assert [one["code"] for one in found] == [0, 1, 1, -27]  # SIGPROF
    # Each test with its first parameters comes first
    assert [one["test"].partition("::")[2] for one in found[1:]] == ["test_half[0]", "test_half[2]", "test_half[0]"]
    assert found[1]["reason"].startswith("assert 7 == (0 / 2)")
    assert found[3]["reason"] == "ended by signal 27"


def test_what_no_test_notices_has_a_reason():
    found = finished(study("questions", "mutants"), records.RESULTS / "questions", False)
    for one in mutants.unnoticed(found):
        assert one["why"], f"{one['module']}, line {one['line']}: {mutants.text(one)}"
