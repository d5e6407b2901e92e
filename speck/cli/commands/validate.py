"""`speck validate`: checks that need no service."""

from __future__ import annotations

import click

from speck.cli.options import add_output_option, output
from speck.model.values import JsonObject


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1)
@click.option("-f", "--file", "more", metavar="FILE", multiple=True, help="The same as FILE.")
@add_output_option
def validate(files: tuple[str, ...], more: tuple[str, ...]) -> None:
    """Check compositions without a service.

    Checks the syntax and the graph of each FILE (`-`: stdin). `speck plan` also checks sites,
    artifacts and slots.
    """
    from speck.cli.messages import CommandFailed

    if not (files or more):
        raise click.UsageError("give at least one FILE (`-`: stdin)")
    reports = [_check_file(file) for file in (*files, *more)]
    output().show({"files": reports}, *(_lines(entry) for entry in reports))
    bad = [str(entry["file"]) for entry in reports if not entry["ok"]]
    if bad:
        count = sum(len(entry["problems"]) for entry in reports)
        raise CommandFailed(
            f"cannot accept {', '.join(bad)}: {count} problem{'' if count == 1 else 's'}"
        )


def _check_file(file: str) -> JsonObject:
    from speck.cli.documents import read
    from speck.errors import InvalidError
    from speck.spec.documents import limits_for, load_document
    from speck.spec.schema import MAX_JOBS, composition_from_data
    from speck.spec.topology import check

    text = read(file)
    name, jobs, warnings = None, 0, list[str]()
    try:
        document = load_document(text.content, text.content_type, limits_for(MAX_JOBS))
        description = composition_from_data(document.data, document.line_of)
        name, jobs = description.name, len(description.jobs)
        problems, warnings = check(description)
        problem_rows = [(p.path, p.message, p.line or document.line_of(p.path)) for p in problems]
    except InvalidError as error:
        problem_rows = [(p.path, p.message, p.line) for p in error.problems] or [
            ("", str(error), None)
        ]
    return {
        "file": text.name,
        "ok": not problem_rows,
        "composition": name,
        "jobs": jobs,
        "problems": [
            {"path": path, "message": message, **({"line": line} if line else {})}
            for path, message, line in problem_rows
        ],
        "warnings": warnings,
    }


def _lines(entry: JsonObject) -> str:
    from speck.cli.messages import clean, style

    lines = []
    for problem in entry["problems"]:
        line = f":{problem['line']}" if "line" in problem else ""
        path = f"{problem['path']}: " if problem["path"] else ""
        mark = style("error:", fg="red")
        lines.append(f"{clean(entry['file'])}{line}: {mark} {clean(path + problem['message'])}")
    for warning in entry["warnings"]:
        lines.append(f"{clean(entry['file'])}: {style('warning:', fg='yellow')} {clean(warning)}")
    if entry["ok"]:
        count = entry["jobs"]
        jobs = f"{count} job{'' if count == 1 else 's'}"
        lines.append(f"{clean(entry['file'])}: composition {entry['composition']}, {jobs}: fine")
    return "\n".join(lines)
