"""How well the house is kept: figures to compare before and after a large change (`make house`).

A line of code holds something else than a comment or a docstring; strings that stand alone, as
beneath an attribute, are docstrings too.
"""

from __future__ import annotations

import ast
import configparser
import functools
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from walks import Walks, read_modules

ROOT = Path(__file__).resolve().parent.parent
KEY = re.compile(r"^[a-z]+/")
"""How a key of the store begins."""
PRODUCT = ("speck", "binders")
AROUND = ("bench", "tests")
UNTYPED = {"Any", "JsonObject", "JsonValue"}
"""Names of types in a signature that say nothing of what is inside."""
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@dataclass(frozen=True)
class Lines:
    """Lines of a module; one with code and a comment counts as both, `written` are not empty."""

    all: int
    code: int
    comments: int
    written: int


def main() -> None:
    """Print one figure a line."""
    modules = _parse("speck")
    at_root = [path for path in modules if path.parent == ROOT / "speck"]
    functions = [found for path, tree in modules.items() for found in _functions(path, tree)]
    for folders in (PRODUCT, AROUND):
        paths = [path for folder in folders for path in _files(folder)]
        say(f"modules of {' and '.join(folders)}", len(paths))
        lines = [count_lines(path) for path in paths]
        say("  lines of code", sum(each.code for each in lines))
        comments = sum(each.comments for each in lines) / sum(each.written for each in lines)
        say("  share of comments", f"{100 * comments:.1f} %")
        say("  modules past 400 lines", sum(each.all > 400 for each in lines))
    say("modules at the root of speck/", sum(path.name != "__init__.py" for path in at_root))
    say("packages at the root of speck/", len(list((ROOT / "speck").glob("*/__init__.py"))))
    say("import layers", len(_layers()))
    longest = max(modules, key=_lines)
    say("longest module", f"{_lines(longest)} lines: {_name(longest)}")
    length, name = max(functions)
    say("longest function", f"{length} lines: {name}")
    length, name = max(found for path, tree in modules.items() for found in _classes(path, tree))
    say("longest class", f"{length} lines: {name}")
    circles = find_circles({path: tree for each in PRODUCT for path, tree in _parse(each).items()})
    say("circles of imports", "; ".join(" - ".join(each) for each in circles) or "none")
    walks = Walks(read_modules(ROOT, "speck/deploy"))
    say("returns of a walk of plan", walks.count("speck.deploy.planner", "plan"))
    say("returns of a walk of prepare", walks.count("speck.deploy.deployer", "Deployer.prepare"))
    untyped = {folder: _untyped(folder) for folder in PRODUCT}
    say("untyped signatures", ", ".join(f"{n} in {each}" for each, n in untyped.items()))
    say("untyped signatures of speck.service", _untyped("speck/service"))
    outside = [path for path in modules if "store" not in path.relative_to(ROOT).parts]
    say("raw reads of the store outside it", sum(_raw_reads(modules[path]) for path in outside))
    say("keys of the store outside it", sum(_keys(modules[path]) for path in outside))


def say(what: str, figure: object) -> None:
    """One line."""
    sys.stdout.write(f"{what:36} {figure}\n")


def find_circles(modules: Mapping[Path, ast.Module]) -> list[list[str]]:
    """Modules that import each other in a circle, types and imports inside functions among them:
    the shortest way around for each that one must cut."""
    names = {path: _module_name(path) for path in modules}
    known = set(names.values())
    imports = {name: set(_imports(modules[path], known)) - {name} for path, name in names.items()}
    circles = []
    while circle := _find_circle(imports):
        circles.append(circle)
        imports[circle[1]] -= {circle[0]}
    return circles


def _find_circle(imports: Mapping[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _imports(tree: ast.Module, known: Set[str]) -> Iterator[str]:
    """The modules among `known` that a module may import; of `from a import b`, `a.b` or `a`."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom) and node.module:
            inside = (f"{node.module}.{alias.name}" for alias in node.names)
            names = [name if name in known else node.module for name in inside]
        yield from (name for name in names if name in known)


def _parse(folder: str) -> dict[Path, ast.Module]:
    return {path: _tree(path) for path in _files(folder)}


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def _files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@functools.cache
def count_lines(path: Path) -> Lines:
    """Tell lines of code, of comments, and empty ones apart."""
    text = path.read_text()
    code: set[int] = set()
    comments = _docstring_lines(_tree(path))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    lines = text.splitlines()
    code -= _docstring_lines(_tree(path))
    return Lines(len(lines), len(code), len(comments), sum(bool(line.strip()) for line in lines))


def _docstring_lines(tree: ast.Module) -> set[int]:
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def _untyped(folder: str) -> int:
    """Functions that take or return an object of which the type says nothing."""
    return sum(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_untyped(node)
        for tree in _parse(folder).values()
        for node in ast.walk(tree)
    )


def _is_untyped(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [each for each in (arguments.vararg, arguments.kwarg) if each]
    annotations = [each.annotation for each in every] + [function.returns]
    return any(
        isinstance(node, ast.Name) and node.id in UNTYPED
        for annotation in annotations
        if annotation is not None
        for node in ast.walk(annotation)
    )


def _functions(path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1, f"{_name(path)}:{node.name}"


def _classes(path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
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


def _module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


if __name__ == "__main__":
    main()
