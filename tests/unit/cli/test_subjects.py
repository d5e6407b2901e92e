"""Commands are told what they are about by a name, or by the document."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.conftest import COMPOSITION, Run


def test_the_document_is_given_with_f_or_by_itself(speck: Run, chain: str) -> None:
    for command in ("validate", "plan"):
        alone = speck(command, chain, "-o", "json")
        with_f = speck(command, "-f", chain, "-o", "json")
        assert with_f.exit_code == alone.exit_code == 0, with_f.output
        assert json.loads(with_f.stdout) == json.loads(alone.stdout)
        assert speck(command, "-f", "-", "-o", "json", stdin=COMPOSITION).exit_code == 0
    assert speck("apply", "-f", chain, "--yes").exit_code == 0
    assert "chain" in speck("status", "-f", chain).stdout
    assert speck("destroy", "-f", chain, "--yes").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("apply",), "give the FILE with the composition"),
        (("apply", "a.yaml", "-f", "b.yaml"), "give FILE once"),
        (("validate",), "give at least one FILE"),
        (("destroy",), "give COMPOSITION, or -f FILE with its document"),
        (("destroy", "chain", "-f", "b.yaml"), "give COMPOSITION or -f FILE, not both"),
        (("destroy", "-f", "no-such.yaml"), "cannot read no-such.yaml"),
        (
            ("destroy", "chain", "--drain-limit", "5"),
            "give --drain-limit together with --drop-queues",
        ),
        (("destroy", "-f", "-"), "cannot tell which composition stdin is: it has no `name`"),
    ],
)
def test_wrong_usage_is_explained(speck: Run, arguments: tuple[str, ...], says: str) -> None:
    done = speck(*arguments, stdin="jobs: []\n")
    assert done.exit_code == 1
    assert says in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("status", "chian"), "did you mean chain?"),
        (("destroy", "chian", "--yes"), "did you mean chain?"),
        (("rollback", "chian", "1", "--yes"), "did you mean chain?"),
        (("history", "chian"), "did you mean chain?"),
        (("job", "claen"), "did you mean clean?"),
        (("metrics", "show", "claen"), "did you mean clean?"),
        (("site", "show", "egde-a"), "did you mean edge-a?"),
        (("place", "other"), "known: chain"),
    ],
)
def test_an_unknown_name_gets_a_suggestion(
    speck: Run, chain: str, arguments: tuple[str, ...], says: str
) -> None:
    assert speck("apply", chain, "--yes").exit_code == 0
    done = speck(*arguments)
    assert done.exit_code == 1
    assert says in done.stderr
