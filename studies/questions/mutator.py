"""Small wrong changes to a source file, of the kind that a person makes: one operator, one number, one condition.

`mutants` finds all changes that can be made to a module, and `Mutant.apply` makes one. Docstrings, annotations,
decorators, imports and messages (strings, and whatever stands in a `raise` or a warning) are left alone. So are the
module's constants in capitals: they are choices, such as the number of rows in a block, and other values are not wrong.
"""

import ast
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass

__all__ = ["KINDS", "Mutant", "mutants"]

ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
EXTREMES = {
    one: other
    for pair in (("min", "max"), ("amin", "amax"), ("argmin", "argmax"), ("minimum", "maximum"), ("cummin", "cummax"))
    for one, other in (pair, pair[::-1])
}
KINDS = {
    "arithmetic": "another operator: + for −, × for ÷",
    "drop": "a term of a sum or a factor of a product left out",
    "sign": "a minus left out",
    "comparison": "another comparison: < for ≤, = for ≠",
    "condition": "a condition turned round",
    "logic": "and for or",
    "constant": "another number: one more, twice as much, 0 for a tiny one, False for True",
    "extreme": "min for max",
    "return": "None returned instead of the result",
}
SILENT = {"warn", "debug", "info", "warning", "error", "exception", "log"}  # calls whose arguments are messages


@dataclass(frozen=True)
class Mutant:
    """One change: `kind`, where it stands, and the text there before and after."""

    kind: str
    line: int
    start: int  # of the text, in characters of the source
    end: int
    before: str
    after: str

    def apply(self, source: str) -> str:
        """The source with the change."""
        if source[self.start : self.end] != self.before:
            raise ValueError(f"{self.before!r} does not stand at character {self.start}: this is another source.")
        return source[: self.start] + self.after + source[self.end :]


def mutants(source: str) -> list[Mutant]:
    """All changes of a module, in the order of the source."""
    starts = [0]
    for text in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(text))
    lines = source.splitlines()

    def place(line: int, column: int) -> int:  # ast counts columns in bytes of UTF-8
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    found = []
    for node in _nodes(ast.parse(source)):
        for kind, old, new in _changes(node):
            start, end = (place(*at) for at in _span(old))
            text = ast.unparse(new)
            if not isinstance(new, ast.stmt | ast.Constant | ast.Name | ast.Attribute):
                text = f"({text})"
            found.append(Mutant(kind, old.lineno, start, end, source[start:end], text))
    return sorted(found, key=lambda one: (one.start, one.end, one.kind, one.after))


# ---- where ----


def _span(node: ast.expr | ast.stmt) -> tuple[tuple[int, int], tuple[int, int]]:
    return (node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or 0)


def _nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """The parts of a program that mean something while it runs."""
    waiting: list[ast.AST] = [one for one in tree.body if not _is_choice(one)]
    while waiting:
        node = waiting.pop(0)
        if _is_text(node):
            continue
        yield node
        waiting += [child for name, value in ast.iter_fields(node) for child in _children(node, name, value)]


def _is_choice(node: ast.stmt) -> bool:
    """Whether a statement of the module gives constants in capitals their values, or lists names."""
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]
    return all(name.isupper() or name == "__all__" for name in names)


def _is_text(node: ast.AST) -> bool:
    """Whether a part of the program is there for people: strings, messages, imports, blocks for type checkers."""
    if isinstance(node, ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr):
        return True
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name in SILENT or name.endswith("Error")
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _children(node: ast.AST, name: str, value: object) -> list[ast.AST]:
    if name in ("annotation", "returns", "decorator_list", "type_comment", "bases", "type_params"):
        return []
    if isinstance(node, ast.Subscript) and _is_type(node):
        return []
    parts = value if isinstance(value, list) else [value]
    return [one for one in parts if isinstance(one, ast.AST)]


def _is_type(node: ast.Subscript) -> bool:
    """Whether `node` is a type such as dict[str, int], which may also stand outside of an annotation."""
    return isinstance(node.value, ast.Name) and node.value.id in ("dict", "list", "tuple", "set", "Callable", "type")


# ---- what ----

Change = tuple[str, ast.expr | ast.stmt, ast.expr | ast.stmt]  # its kind, what it is made to, and what that becomes


def _changes(node: ast.AST) -> Iterator[Change]:
    """All changes of one node."""
    if isinstance(node, ast.BinOp | ast.AugAssign):
        yield from _arithmetic(node)
    elif isinstance(node, ast.Compare | ast.BoolOp | ast.UnaryOp):
        yield from _logic(node)
    elif isinstance(node, ast.IfExp):
        yield "condition", node, ast.IfExp(node.test, node.orelse, node.body)
    elif isinstance(node, ast.If | ast.While):
        yield from _turned(node.test)
    elif isinstance(node, ast.comprehension):
        for test in node.ifs:
            yield from _turned(test)
    elif isinstance(node, ast.Constant):
        yield from (("constant", node, ast.Constant(value)) for value in _numbers(node.value))
    elif isinstance(node, ast.Name) and node.id in EXTREMES:
        yield "extreme", node, ast.Name(EXTREMES[node.id])
    elif isinstance(node, ast.Attribute) and node.attr in EXTREMES:
        yield "extreme", node, ast.Attribute(node.value, EXTREMES[node.attr])
    elif isinstance(node, ast.Return) and not (node.value is None or _is_none(node.value)):
        yield "return", node, ast.Return(None)


def _arithmetic(node: ast.BinOp | ast.AugAssign) -> Iterator[Change]:
    strings = (ast.Constant, ast.JoinedStr)
    text = any(isinstance(one, strings) and not _is_number(one) for one in ast.iter_child_nodes(node))
    if type(node.op) not in ARITHMETIC or text:
        return  # a product of matrices has no other meaning, and + joins strings
    changed = deepcopy(node)
    changed.op = ARITHMETIC[type(node.op)]()
    yield "arithmetic", node, changed
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
        yield "drop", node, node.left
        if isinstance(node.op, ast.Add | ast.Mult):
            yield "drop", node, node.right


def _logic(node: ast.Compare | ast.BoolOp | ast.UnaryOp) -> Iterator[Change]:
    if isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.USub | ast.Not):
            yield "sign" if isinstance(node.op, ast.USub) else "condition", node, node.operand
    elif isinstance(node, ast.BoolOp):
        yield "logic", node, ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    else:
        for i, one in enumerate(node.ops):
            changed = deepcopy(node)
            changed.ops[i] = COMPARISONS[type(one)]()
            yield "comparison", node, changed


def _turned(test: ast.expr) -> Iterator[Change]:
    """A condition turned round, unless another change does that."""
    turned = isinstance(test, ast.UnaryOp) or (isinstance(test, ast.Compare) and len(test.ops) == 1)
    if not turned or (isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)):
        yield "condition", test, ast.UnaryOp(ast.Not(), test)


def _numbers(value: object) -> list[int | float]:
    """Other values for a number."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1]
    if isinstance(value, float):
        return [0.0 if 0 < value < 0.01 else 2 * value or 1.0]
    return []


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
