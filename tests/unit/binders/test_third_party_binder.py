"""A binder from a package of its own is found without touching speck, as docs/binders.md says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from speck.binding import BROKERS, ENGINES, Target, kinds, open_broker, open_engine
from speck.errors import PermanentError

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "tests" / "sample_binder"

USE_IT = """
import sys
from speck.binding import BROKERS, Target, kinds, open_broker
from speck.errors import UnreachableError

assert kinds(BROKERS) == ("kafka", "mailbox", "memory", "mqtt"), kinds(BROKERS)
assert "speck_mailbox" not in sys.modules, "looked up by name only"

broker = open_broker("mailbox", Target("box://mailbox:25"))
assert broker.reach() == "mailbox 1.0"
broker.reserve("speck-1234abcd-clean-00000000", "raw")
assert broker.view().taken == {}
assert [finding.setting for finding in broker.check()] == ["persistence"]
broker.close()
try:
    open_broker("mailbox", Target("box://elsewhere:25")).reach()
except UnreachableError as error:
    print(error)
"""


def install(source: Path, target: Path, scratch: Path) -> None:
    """What pip does with a folder, by setuptools alone: no network, no build environment."""
    folder = scratch / "source"  # setuptools leaves its build folders in the source
    shutil.copytree(source, folder)
    into = ["--install-dir", str(target)]
    subprocess.run(
        [
            *(sys.executable, "-c", "import setuptools; setuptools.setup()"),
            *("-q", "build_py", "install_lib", *into, "install_egg_info", *into),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )


def test_a_binder_installed_from_a_folder_is_found_by_its_kind(tmp_path: Path) -> None:
    install(SAMPLE, tmp_path / "site", tmp_path)

    path = os.pathsep.join((str(tmp_path / "site"), str(ROOT)))
    process = subprocess.run(
        [sys.executable, "-c", USE_IT],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert process.returncode == 0, process.stderr
    assert process.stdout == "cannot reach the mailbox at box://elsewhere:25\n"


def test_without_the_package_its_kind_is_unknown() -> None:
    with pytest.raises(PermanentError) as error:
        open_broker("mailbox", Target("tcp://mailbox:1883"))

    assert str(error.value) == (
        "cannot use kind 'mailbox': no binder of that name in entry points 'speck.brokers'"
        " (installed: kafka, memory, mqtt); install one, see docs/binders.md"
    )


def test_the_kinds_that_come_with_speck() -> None:
    assert kinds(ENGINES) == ("flink", "memory", "process", "spark")
    assert kinds(BROKERS) == ("kafka", "memory", "mqtt")
    with pytest.raises(PermanentError, match="cannot use kind 'storm'"):
        open_engine("storm", Target("http://site:8081"))


def test_the_page_on_binders_shows_the_very_sample() -> None:
    page = (ROOT / "docs" / "binders.md").read_text("utf-8")
    files = [
        file.read_text("utf-8") for file in SAMPLE.rglob("*") if file.suffix in (".cfg", ".py")
    ]
    samples = re.findall(r"^```(?:ini|python sample)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)

    assert len(samples) == 2
    for block in samples:
        assert any(block in text for text in files), block


def test_the_page_on_binders_shows_python_that_runs() -> None:
    page = (ROOT / "docs" / "binders.md").read_text("utf-8")
    blocks = re.findall(r"^```python run\n(.*?)^```", page, re.MULTILINE | re.DOTALL)

    assert blocks
    for block in blocks:
        subprocess.run([sys.executable, "-c", block], cwd=ROOT, check=True)


def test_the_contracts_speak_no_engine_s_and_no_broker_s_words() -> None:
    """But for the kind of artifact that is a jar."""
    words = re.compile(
        r"flink|mqtt|kafka|spark|savepoint|retained|_metadata|client.id|class.name|\bjars?\b", re.I
    )
    folders = [ROOT / "speck" / "binding", ROOT / "speck" / "agent"]
    texts = {
        f"{file.name}:{number}": line
        for folder in folders
        for file in folder.glob("*.py")
        for number, line in enumerate(file.read_text().splitlines(), 1)
    }
    spoken = {place: line.strip() for place, line in texts.items() if words.search(line)}
    expected = ("JAR = ", "ArtifactKind.JAR")
    assert {
        place: line for place, line in spoken.items() if not any(each in line for each in expected)
    } == {}


def test_kinds_that_are_left_out_are_said_in_one_place() -> None:
    """The fog, which starts both itself, is the only other place that names them."""
    quoted = re.compile(r"""["'](flink|mqtt)["']""")
    files = sorted((ROOT / "speck").rglob("*.py"))
    named = {
        str(file.relative_to(ROOT / "speck")): quoted.findall(file.read_text()) for file in files
    }
    assert {name: kinds for name, kinds in named.items() if kinds} == {
        "fog/sites.py": ["flink"],
        "model/site.py": ["flink", "mqtt"],
    }
