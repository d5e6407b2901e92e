"""How well the house is kept: figures to compare before and after a large change (`make house`).
With `check` it prints what is longer than it may be instead, and fails if there is any (`make
check`).

A line of code holds something else than a comment or a docstring; strings that stand alone, as
beneath an attribute, are docstrings too.
"""

from __future__ import annotations

import ast
import configparser
import functools
import io
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from walks import Walks, read_modules

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("speck", "binders", "policies", "traffic")
AROUND = ("bench", "tests")
LONGEST_MODULE = 500
LONGEST_CLASS = 300
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
    docstrings: int
    written: int


def main() -> None:
    """Print one figure a line."""
    modules = {path: tree for each in PRODUCT for path, tree in _parse(each).items()}
    at_root = [path for path in modules if path.parent == ROOT / "speck"]
    functions = [each for path, tree in modules.items() for each in _functions(path, tree)]
    for folders in (PRODUCT, AROUND):
        paths = [path for folder in folders for path in _files(folder)]
        say(f"modules of {' and '.join(folders)}", len(paths))
        lines = [count_lines(path) for path in paths]
        say("  lines of code", sum(each.code for each in lines))
        written = sum(each.written for each in lines)
        for kind in ("comments", "docstrings"):
            share = sum(getattr(each, kind) for each in lines) / written
            say(f"  share of {kind}", f"{100 * share:.2f} %")
        say("  modules past 400 lines", sum(each.all > 400 for each in lines))
    say("modules at the root of speck/", sum(path.name != "__init__.py" for path in at_root))
    say("packages at the root of speck/", len(list((ROOT / "speck").glob("*/__init__.py"))))
    say("import layers", len(_layers()))
    longest = max(modules, key=_lines)
    say("longest module", f"{_lines(longest)} lines: {_name(longest)}")
    length, name = max(functions)
    say("longest function", f"{length} lines: {name}")
    length, name = max(each for path, tree in modules.items() for each in _classes(path, tree))
    say("longest class", f"{length} lines: {name}")
    circles = find_circles(modules)
    say("circles of imports", "; ".join(" - ".join(each) for each in circles) or "none")
    walks = Walks(read_modules(ROOT, "speck/deploy"))
    say("returns of a walk of plan", walks.count("speck.deploy.planner", "plan"))
    say("returns of a walk of prepare", walks.count("speck.deploy.deployer", "Deployer.prepare"))
    aliases = find_aliases(modules.values())
    for folder in (*PRODUCT, "speck/service"):
        trees = _parse(folder).values()
        say(
            f"untyped signatures of {folder}",
            sum(len(find_untyped(each, aliases)) for each in trees),
        )
    outside = [path for path in modules if "store" not in path.relative_to(ROOT).parts]
    say("raw reads of the store outside it", sum(_raw_reads(modules[path]) for path in outside))
    nouns = find_nouns(_tree(ROOT / "speck/store/record_types.py"))
    say("keys of the store outside it", sum(_keys(modules[path], nouns) for path in outside))


def check() -> int:
    """Print the modules and classes that are too long; the status to exit with."""
    paths = (path for folder in (*PRODUCT, *AROUND) for path in _files(folder))
    faults = [fault for path in paths for fault in find_long(_name(path), path.read_text())]
    for fault in faults:
        sys.stderr.write(f"cannot accept {fault}: part it by subject\n")
    return 1 if faults else 0


def find_long(name: str, source: str) -> list[str]:
    """A module and its classes, by name, that have more lines than they may."""
    length = len(source.splitlines())
    faults = [f"{name}: {length} lines"] if length > LONGEST_MODULE else []
    if length <= LONGEST_CLASS:
        return faults
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            faults += [f"{name}: {node.name}: {length} lines"] if length > LONGEST_CLASS else []
    return faults


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
    docstrings = _docstring_lines(_tree(path))
    comments: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    lines = text.splitlines()
    code -= docstrings
    written = sum(bool(line.strip()) for line in lines)
    return Lines(len(lines), len(code), len(comments), len(docstrings), written)


def _docstring_lines(tree: ast.Module) -> set[int]:
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def find_aliases(trees: Iterable[ast.Module]) -> Set[str]:
    """The names of types that say nothing of what is inside: `Any`, and those made of it, like
    `Row = dict[str, Any]`."""
    made = [
        (node.targets[0].id, node.value)
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Subscript | ast.BinOp | ast.Name)
    ]
    aliases = set(UNTYPED)
    while new := {name for name, value in made if _says_nothing(value, aliases)} - aliases:
        aliases |= new
    return aliases


def find_untyped(tree: ast.Module, aliases: Set[str]) -> list[str]:
    """The functions that take or return an object of which the type says nothing, by name."""
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(_says_nothing(each, aliases) for each in _annotations(node))
    ]


def _annotations(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.expr]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [each for each in (arguments.vararg, arguments.kwarg) if each]
    yield from (each.annotation for each in every if each.annotation is not None)
    if function.returns is not None:
        yield function.returns


def _says_nothing(annotation: ast.expr, aliases: Set[str]) -> bool:
    """Also if it is quoted, `typing.Any`, or a mapping to `object`."""
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name | ast.Attribute) and _last_name(node) in aliases:
            return True
        if isinstance(node, ast.Subscript) and _last_name(node.value) in ("dict", "Mapping"):
            inner = getattr(node.slice, "elts", [node.slice])
            if _last_name(inner[-1]) == "object":
                return True
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                quoted = ast.parse(node.value, mode="eval").body
            except SyntaxError:  # a choice of a Literal
                continue
            if _says_nothing(quoted, aliases):
                return True
    return False


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
    """Calls like `records.store.get(...)`, `self._store.get(...)` or `store.get(...)`."""
    return sum(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("get", "scan", "last", "keys")
        and _last_name(node.func.value) in ("store", "_store")
        for node in ast.walk(tree)
    )


def _last_name(node: ast.AST) -> str:
    """`c` of `a.b.c`."""
    return getattr(node, "attr", getattr(node, "id", ""))


def find_nouns(record_types: ast.Module) -> Set[str]:
    """What the keys of each table begin with."""
    tables = next(
        node.value
        for node in record_types.body
        if isinstance(node, ast.AnnAssign) and _last_name(node.target) == "TABLES"
    )
    assert isinstance(tables, ast.Dict)
    return {key.value for key in tables.keys if isinstance(key, ast.Constant)}


def _keys(tree: ast.Module, nouns: Set[str]) -> int:
    """Literals, f-strings among them, that begin like `head/`, as an argument of a call, or as the
    key of a batch."""
    count = 0
    for node in ast.walk(tree):
        candidates: list[ast.expr | None] = []
        if isinstance(node, ast.Dict):
            candidates += node.keys
        if isinstance(node, ast.Call):
            candidates += node.args
        if isinstance(node, ast.Subscript):
            candidates.append(node.slice)
        count += sum(_is_key(each, nouns) for each in candidates)
    return count


def _is_key(node: ast.expr | None, nouns: Set[str]) -> bool:
    first = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node
    if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
        return False
    noun, slash, _ = first.value.partition("/")
    return bool(slash) and noun in nouns


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


if __name__ == "__main__":
    if sys.argv[1:] == ["check"]:
        sys.exit(check())
    main()
