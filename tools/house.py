"""How well the house is kept: figures to compare before and after a large change (`make house`)."""

from __future__ import annotations

import ast
import configparser
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEY = re.compile(r"^[a-z]+/")
"""How a key of the store begins."""


def main() -> None:
    """Print one figure a line."""
    modules = {path: ast.parse(path.read_text()) for path in sorted((ROOT / "speck").rglob("*.py"))}
    at_root = [path for path in modules if path.parent == ROOT / "speck"]
    functions = [found for path, tree in modules.items() for found in _functions(path, tree)]
    say("modules at the root of speck/", sum(path.name != "__init__.py" for path in at_root))
    say("packages at the root of speck/", len(list((ROOT / "speck").glob("*/__init__.py"))))
    say("import layers", len(_layers()))
    longest = max(modules, key=_lines)
    say("longest module", f"{_lines(longest)} lines: {_name(longest)}")
    length, name = max(functions)
    say("longest function", f"{length} lines: {name}")
    outside = [path for path in modules if "store" not in path.relative_to(ROOT).parts]
    say("raw reads of the store outside it", sum(_raw_reads(modules[path]) for path in outside))
    say("keys of the store outside it", sum(_keys(modules[path]) for path in outside))


def say(what: str, figure: object) -> None:
    """One line."""
    sys.stdout.write(f"{what:34} {figure}\n")


def _functions(path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1, f"{_name(path)}:{node.name}"


def _layers() -> list[str]:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    layers = contracts["importlinter:contract:layers"]["layers"]
    return [line for line in layers.splitlines() if line.strip() and not line.startswith("#")]


def _raw_reads(tree: ast.Module) -> int:
    """Calls like `records.store.get(...)`."""
    return sum(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("get", "scan", "last", "keys")
        and isinstance(node.func.value, ast.Attribute)
        and node.func.value.attr == "store"
        for node in ast.walk(tree)
    )


def _keys(tree: ast.Module) -> int:
    """Literals, f-strings among them, that begin like `head/`, as an argument of such a call, or
    as the key of a batch."""
    found = 0
    for node in ast.walk(tree):
        candidates: list[ast.expr | None] = []
        if isinstance(node, ast.Dict):
            candidates += node.keys
        if isinstance(node, ast.Call):
            candidates += node.args
        if isinstance(node, ast.Subscript):
            candidates.append(node.slice)
        found += sum(_is_key(each) for each in candidates)
    return found


def _is_key(node: ast.expr | None) -> bool:
    if not isinstance(node, ast.JoinedStr):
        return False
    first = node.values[0] if node.values else None
    return (
        isinstance(first, ast.Constant)
        and isinstance(first.value, str)
        and KEY.match(first.value) is not None
    )


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
