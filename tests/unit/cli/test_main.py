"""Help, errors and exit statuses of the whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from speck.cli.main import _LAZY, root
from tests.unit.cli.conftest import Run

HEAVY = ("flask", "requests", "rich", "marshmallow", "plyvel", "paho", "yaml", "gunicorn")

LISTED = {
    "serve",
    "fog",
    "site",
    "validate",
    "plan",
    "apply",
    "status",
    "jobs",
    "job",
    "events",
    "history",
    "rollback",
    "destroy",
    "artifacts",
    "audit",
    "token",
    "replay",
    "backup",
    "restore",
    "completion",
}


@pytest.mark.parametrize("args", [["--help"], ["apply", "--help"], ["fog", "up", "--help"]])
def test_help_imports_nothing_heavy(args: list[str]) -> None:
    code = (
        "import sys\n"
        "from speck.cli.main import root\n"
        f"try: root.main({args!r}, prog_name='speck')\n"
        "except SystemExit as end: assert end.code == 0, end.code\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.startswith("Usage: speck")
    assert process.stderr.strip() == "[]"


def test_help_lists_every_command(alone: Run) -> None:
    output = alone("--help").stdout
    names = [line.split()[0] for line in output.split("Commands:\n")[1].splitlines()]
    assert names == list(_LAZY)
    assert set(names) >= LISTED
    assert "..." not in output.split("Commands:\n")[1]


def commands(group: click.Group, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    ctx = click.Context(group)
    paths: list[tuple[str, ...]] = []
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None, name
        paths.append((*path, name))
        if isinstance(command, click.Group):
            paths += commands(command, (*path, name))
    return paths


@pytest.mark.parametrize("path", commands(root, ()), ids=" ".join)
def test_every_command_has_help(path: tuple[str, ...], alone: Run) -> None:
    result = alone(*path, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: speck {' '.join(path)}")


def test_version(alone: Run) -> None:
    assert alone("--version").stdout.startswith("speck 0.")


def test_wrong_usage_exits_with_1(alone: Run) -> None:
    for args in (["nonsense"], ["plan"], ["site", "show"], ["-o", "xml", "jobs"]):
        result = alone(*args)
        assert result.exit_code == 1, args
        assert "Usage: speck" in result.stderr
        assert result.stdout == ""


def test_a_misspelt_command_is_told_what_may_be_meant(alone: Run) -> None:
    assert "no command 'aply'; did you mean apply?" in alone("aply").stderr
    assert "no command 'Up'; did you mean up?" in alone("fog", "Up").stderr


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("status",), "cannot reach speck at http://127.0.0.1:1: Connection refused;"),
        (("plan",), "give a FILE or --composition NAME"),
    ],
)
def test_errors_are_json_where_data_is(args: tuple[str, ...], error: str, alone: Run) -> None:
    result = alone("-o", "json", *args)
    assert result.exit_code == 1
    assert result.stdout == ""
    problem = json.loads(result.stderr)
    assert problem["error"].startswith(error)
    assert problem["problems"] == []


def test_says_how_to_start_a_missing_server(alone: Run) -> None:
    result = alone("status")
    assert result.exit_code == 1
    assert result.stderr == (
        "error: cannot reach speck at http://127.0.0.1:1: Connection refused;"
        " start it with `speck serve`\n"
    )


def test_an_unforeseen_error_shows_no_traceback(
    alone: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr("speck.client.Client.sites", fails)
    result = alone("site", "list")
    assert result.exit_code == 1
    assert result.stderr == (
        "error: cannot continue: RuntimeError: out of luck (SPECK_DEBUG=1 shows where)\n"
    )
    debugged = alone("site", "list", SPECK_DEBUG="1")
    assert isinstance(debugged.exception, RuntimeError)


def test_options_stand_before_or_after_the_command(speck: Run, server: object) -> None:
    url = getattr(server, "url")  # noqa: B009
    nowhere = "http://127.0.0.1:1"
    before = speck("--server", url, "-o", "json", "jobs", SPECK_SERVER=nowhere)
    after = speck("jobs", "--server", url, "-o", "json", SPECK_SERVER=nowhere)
    assert before.exit_code == after.exit_code == 0
    assert before.stdout == after.stdout == '{\n  "jobs": []\n}\n'


def test_refuses_a_server_that_is_no_address(alone: Run) -> None:
    result = alone("jobs", "--server", "localhost:8080")
    assert "cannot use 'localhost:8080' as the service's address" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, alone: Run) -> None:
    result = alone("completion", shell)
    assert result.exit_code == 0
    assert f"_SPECK_COMPLETE={shell}_complete" in result.stdout


def test_completes_commands_and_names(speck: Run, alone: Run) -> None:
    environment = {"_SPECK_COMPLETE": "bash_complete", "COMP_CWORD": "3"}
    result = speck(COMP_WORDS="speck site show edge", **environment)
    assert result.stdout.split() == ["plain,edge-a", "plain,edge-b"]
    assert alone(COMP_WORDS="speck site show edge", **environment).stdout.strip() == ""


def test_ctrl_c_ends_with_130(alone: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("speck.client.Client.sites", interrupted)
    assert alone("site", "list").exit_code == 130


def test_serve_takes_options_over_the_environment(
    alone: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from speck.config import Config

    configs: list[Config] = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr("speck.api.server.serve", configs.append)
    result = alone(
        "serve", "--port", "0", "--jars", "a", "--jars", "b", SPECK_PORT="9", SPECK_HOST="127.0.0.9"
    )
    assert result.exit_code == 0, result.stderr
    (config,) = configs
    assert (config.port, config.host, config.home) == (0, "127.0.0.9", tmp_path / "offline")
    assert config.jar_folders == (tmp_path / "a", tmp_path / "b")
    files = ("--tls-cert", "cert.pem", "--client-ca", str(tmp_path / "ca.pem"))
    assert alone("serve", *files, SPECK_TLS_KEY="key.pem").exit_code == 0
    config = configs[-1]
    assert (config.tls_cert, config.tls_key, config.client_ca) == (
        tmp_path / "cert.pem",
        tmp_path / "key.pem",
        tmp_path / "ca.pem",
    )
    missing = alone("serve", "--port", "0", "--jars", "c")
    assert missing.exit_code == 1
    assert "Directory 'c' does not exist" in missing.stderr
    wrong = alone("serve", SPECK_PORT="many")
    assert "cannot read SPECK_PORT" in wrong.stderr


@pytest.mark.parametrize("file", ["/dev/zero", "-"])
def test_a_document_without_end_is_refused(speck: Run, file: str) -> None:
    with open("/dev/zero", "rb") as zeros:
        done = speck("plan", file, stdin=zeros)
    assert done.exit_code == 1
    assert "it has more than 64 MiB" in done.stderr


def test_a_token_file_holds_a_token(alone: Run) -> None:
    done = alone("--token-file", "/dev/zero", "jobs")
    assert "cannot read the token file /dev/zero: it holds more than a token" in done.stderr


def test_a_device_is_no_artifact(speck: Run) -> None:
    done = speck("artifacts", "push", "/dev/zero")
    assert "cannot send /dev/zero: it is no file" in done.stderr


@pytest.mark.parametrize(
    "server", ["http://127.0.0.1:99999", "http://[::1", "http://127.0.0.1:x", "http://h:0"]
)
def test_an_address_that_is_none_is_named(alone: Run, server: str) -> None:
    assert (
        f"cannot use {server!r} as the service's address"
        in alone("--server", server, "jobs").stderr
    )


def test_a_password_in_the_address_is_refused_and_not_shown(alone: Run) -> None:
    done = alone("--server", "http://root:SECRET@127.0.0.1:8080", "jobs")
    assert "cannot use a user or password in the service's address" in done.stderr
    assert "SECRET" not in done.stderr


def test_an_argument_that_is_no_text_is_named(speck: Run) -> None:
    done = speck("job", "a\udcff")
    assert "cannot use 'a\\udcff'" in done.stderr.replace("\\\\", "\\")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_error_of_the_service(closed: str) -> None:
    speck = f"{sys.executable} -m speck.cli --server http://127.0.0.1:9 status"
    done = subprocess.run(["sh", "-c", f"{speck} {closed}"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "2>&-" in closed or done.stderr.startswith("error: cannot reach speck")
