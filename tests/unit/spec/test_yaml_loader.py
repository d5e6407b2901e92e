"""Strict YAML and JSON: accepted documents, and the messages of refused ones."""

from __future__ import annotations

import pytest

from speck.errors import InvalidError, Problem
from speck.spec.yaml_loader import MAX_BYTES, MAX_DEPTH, MAX_NODES, Limits, load, load_json

USUAL = Limits()


def load_refused(text: bytes | str, read=load, limits: Limits = USUAL) -> list[Problem]:
    with pytest.raises(InvalidError) as error:
        read(text, limits)
    assert error.value.status == 400
    assert str(error.value) == f"cannot read the document: {error.value.problems[0]}"
    return list(error.value.problems)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("true", True),
        ("false", False),
        ("True", "True"),
        ("yes", "yes"),
        ("NO", "NO"),
        ("on", "on"),
        ("null", None),
        ("~", None),
        ("", None),
        ("Null", "Null"),
        ("0", 0),
        ("-12", -12),
        ("010", "010"),
        ("0x1f", "0x1f"),
        ("0o17", "0o17"),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("+1", "+1"),
        ("1234567890123456789012", "1234567890123456789012"),
        ("1.5", 1.5),
        ("-0.25", -0.25),
        ("1e3", 1000.0),
        ("1.", "1."),
        (".5", ".5"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("1e999", "1e999"),
        ("2026-01-31", "2026-01-31"),
        ("'5'", "5"),
        ('"true"', "true"),
        ("<<", "<<"),
        ("=", "="),
    ],
)
def test_scalars_mean_what_is_written(written: str, meant: object) -> None:
    value = load(f"a: {written}\n").data["a"]
    assert value == meant
    assert type(value) is type(meant)


def test_keys_are_text() -> None:
    assert load("1: a\ntrue: b\nnull: c\n<<: {d: e}\n").data == {
        "1": "a",
        "true": "b",
        "null": "c",
        "<<": {"d": "e"},
    }


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_document_is_null(text: str) -> None:
    assert load(text).data is None


def test_a_byte_order_mark_is_no_text() -> None:
    assert load(b"\xef\xbb\xbfa: 1").data == {"a": 1}
    assert load_json(b'\xef\xbb\xbf{"a": 1}').data == {"a": 1}


def test_lines() -> None:
    document = load("name: x\njobs:\n- job_name: A\n  args:\n  - one\n  -\n    two\n- {a.b: 1}\n")
    assert document.line_of("") == 1
    assert document.line_of("jobs") == 2
    assert document.line_of("jobs[0]") == 3
    assert document.line_of("jobs[0].args[0]") == 5
    assert document.line_of("jobs[0].args[1]") == 7
    assert document.line_of("jobs[1].a.b") == 8


def test_the_line_of_what_is_missing_is_that_of_what_encloses_it() -> None:
    document = load("name: x\njobs:\n- job_name: A\n")
    assert document.line_of("jobs[0].sink_topic") == 3
    assert document.line_of("jobs[7].sink_topic") == 2
    assert document.line_of("other") == 1


def test_json_has_no_lines() -> None:
    assert load_json('{\n"a": 1}').line_of("a") is None


FORBIDDEN = "anchors and aliases are not allowed; write the value out"


def test_every_forbidden_thing_is_named() -> None:
    text = "a: &x 1\nb: *x\nc: {d: 1, d: 2}\ne:\n- !!python/object:os.system 1\nc: 3\n"
    assert load_refused(text) == [
        Problem("a", FORBIDDEN, 1),
        Problem("b", FORBIDDEN, 2),
        Problem("c.d", "duplicate key 'd' (first on line 3)", 3),
        Problem(
            "e[0]",
            "tags (tag:yaml.org,2002:python/object:os.system) are not allowed; quote what is text",
            5,
        ),
        Problem("c", "duplicate key 'c' (first on line 3)", 6),
    ]


def test_a_forbidden_key_has_the_path_of_its_mapping() -> None:
    assert load_refused("a:\n  &x b: 1\n") == [Problem("a", FORBIDDEN, 2)]
    assert load_refused("&x b: 1\n") == [Problem("", FORBIDDEN, 1)]


def test_a_bomb_of_aliases_is_refused() -> None:
    text = "a: &a [x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20)
    )
    assert load_refused(text)[0] == Problem("a", FORBIDDEN, 1)


def test_a_second_document_is_refused() -> None:
    assert load_refused("a: 1\n---\nb: 2\n") == [Problem("", "a second document; send one only", 2)]


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\n---\n",
        "a: 1\n...\n",
        "a: 1\n...\n---\n# the end\n",
        "---\n---\na: 1\n---\n---",
        "%YAML 1.1\n---\na: 1\n...",
    ],
)
def test_empty_documents_do_not_count(text: str) -> None:
    assert load(text).data == {"a": 1}


def test_empty_documents_count_as_values() -> None:
    assert "more than" in load_refused("---\n" * 30_000)[0].message


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("----\na: 1\n", 1),
        ("a: 1\n--------\n", 2),
        ("a:\n- b: 1\n----\n- b: 2\n", 3),
        ("----\r\na: 1\r\n", 1),
        ("\n  -----  \na: 1\n", 2),
        ("\u2014\u2014\u2014\u2014\na: 1\n", 1),
        ("====\na: 1\n", 1),
        ("```yaml\na: 1\n```\n", 1),
        ("----", 1),
    ],
)
def test_a_pasted_line_is_named(text: str, line: int) -> None:
    (problem,) = load_refused(text)
    assert "is not part of the document, but pasted with it: delete it" in problem.message
    assert problem.line == line


def test_a_text_does_not_go_on_over_a_line_of_dashes() -> None:
    (problem,) = load_refused("a:\n- b: T\n    ----\n  c: 1\n")
    assert problem.path == "a[0].b"
    assert problem.message.startswith("a line of dashes (----) is not part of the document")
    assert load("a: |\n  b\n  ----\nb: x ---- y\n").data == {"a": "b\n----\n", "b": "x ---- y"}


def test_a_line_of_dashes_behind_a_fault_is_not_its_cause() -> None:
    (problem,) = load_refused("a: [\nb: 1\nc: 1\n\n\n\nd: |\n  ----\n")
    assert problem.message.startswith("not valid YAML")


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (r'{"a": "\ud83d\ude00\u0041"}', {"a": "\U0001f600A"}),
        (r'"\uD83D\uDE00": x', {"\U0001f600": "x"}),
        (r'a: "\\ud83d\\ude00 \\\ud83d\ude00"', {"a": "\\ud83d\\ude00 \\\U0001f600"}),
        ("a: '\\ud83d\\ude00'\nb: \"\\ud83d\\ude00\"", {"a": r"\ud83d\ude00", "b": "\U0001f600"}),
        ("b: \"\\ud83d\\ude00\"\n# \\ud83d\\ude00\nc: \\ud83d\\ude00",
         {"b": "\U0001f600", "c": r"\ud83d\ude00"}),
        ("\u00e9: \"\\ud83d\\ude00\"", {"\u00e9": "\U0001f600"}),
    ],
)  # fmt: skip
def test_a_character_in_two_halves_is_one(text: str, data: object) -> None:
    assert load(text).data == data


@pytest.mark.parametrize("text", [r'a: "\ud83d"', r'a: "\ude00\ud83d"', r'{"a": "\ud83d"}'])
def test_half_a_character_is_none(text: str) -> None:
    assert "invalid Unicode character escape code" in load_refused(text)[0].message


def test_json_that_is_no_yaml_is_json() -> None:
    assert load('{"a":1,\n\t"b":[\t"\\/"]}').data == {"a": 1, "b": ["/"]}


def test_only_text_can_be_a_key() -> None:
    assert load_refused("a:\n  ? [1]\n  : 2\n") == [Problem("a", "a key must be text", 2)]


def test_a_syntax_error_has_its_line() -> None:
    (problem,) = load_refused("a: 1\nb: [1, 2\n")
    assert problem.line == 3
    assert problem.message.startswith("not valid YAML: did not find expected ',' or ']'")


def test_control_characters_are_refused() -> None:
    (problem,) = load_refused(b"a: \x00")
    assert problem.message.startswith("not valid YAML: unacceptable character #x0000")


@pytest.mark.parametrize("read", [load, load_json])
def test_only_utf8(read) -> None:
    assert load_refused(b'"ab\n\xff"', read) == [Problem("", "not UTF-8 text", 2)]


@pytest.mark.parametrize("read", [load, load_json])
def test_the_size_is_capped(read) -> None:
    message = f"larger than {MAX_BYTES} bytes; split the composition"
    assert load_refused(b" " * (MAX_BYTES + 1), read) == [Problem("", message)]
    assert load_refused('"' + "é" * (MAX_BYTES // 2) + '"', read) == [Problem("", message)]


@pytest.mark.parametrize("read", [load, load_json])
def test_the_depth_is_capped(read) -> None:
    read("[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH)
    for depth in (MAX_DEPTH + 1, 5_000, 30_000):
        (problem,) = load_refused("[" * depth + "]" * depth, read)
        assert problem.message == f"nested deeper than {MAX_DEPTH} levels"


@pytest.mark.parametrize("read", [load, load_json])
def test_the_number_of_values_is_capped(read) -> None:
    of_its_size = "values, the most of a document of this size"
    (problem,) = load_refused("[" + "12345," * MAX_NODES + "1]", read, Limits(2 * MAX_BYTES))
    assert problem.message == f"more than {MAX_NODES} {of_its_size}"
    (problem,) = load_refused("[" + "1," * 300_000 + "1]", read)
    assert problem.message == f"more than {600_003 // 6} {of_its_size}"
    read("[" + "1," * 19_000 + "1]")
    assert len(read("[" + "123456," * 149_000 + "1]").data) == 149_001


@pytest.mark.parametrize("read", [load, load_json])
def test_the_length_of_a_key_is_capped(read) -> None:
    (problem,) = load_refused('{"' + "k" * 256 + '": 1}', read)
    assert problem.message == "a key is longer than 255 characters"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', "duplicate key 'a'"),
        ('{"a": NaN}', "not valid JSON: NaN is no number"),
        ('{"a": -Infinity}', "not valid JSON: -Infinity is no number"),
        ('{"a": 1e999}', "not valid JSON: 1e999 is too large a number"),
        (r'{"a": "\ud800"}', "not valid Unicode: half of a surrogate pair"),
        (r'{"\ud800": 1}', "not valid Unicode: half of a surrogate pair"),
    ],
)
def test_json_is_strict_too(text: str, message: str) -> None:
    assert load_refused(text, load_json) == [Problem("", message)]


def test_a_json_syntax_error_has_its_line() -> None:
    (problem,) = load_refused('{"a": 1,\n}', load_json)
    assert problem.line in (1, 2)
    assert problem.message.startswith("not valid JSON: ")


def test_json_refuses_numbers_of_endless_digits() -> None:
    (problem,) = load_refused("[" + "9" * 10_000 + "]", load_json)
    assert problem.message.startswith("not valid JSON: ")


def test_directives_are_few_and_percent_signs_are_not() -> None:
    assert load("%YAML 1.1\n---\na: '% b'\nc: |\n" + " %d\n" * 100).data["c"] == "%d\n" * 100
    assert load('{"a": "' + "%" * 100 + '"}').data == {"a": "%" * 100}
    with pytest.raises(InvalidError, match="more than 20 lines begin with %"):
        load("%A b\n" * 21 + "---\na: b\n")
