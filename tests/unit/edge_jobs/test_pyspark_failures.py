"""Why a query in PySpark has failed, in one line; without Spark."""

from __future__ import annotations

import pytest
from speck_spark.failures import explain, explaining, list_messages

FAILED = "[STREAM_FAILED] Query [id = 1] terminated with exception: "
PLAN = "\n=== Streaming Query ===\nIdentifier: a [id = 1]\nLogical Plan:\n+- cannot be this"


@pytest.mark.parametrize(
    ("messages", "line"),
    [
        (
            [
                f"{FAILED}cannot publish to tcp://b:1 out: No space left SQLSTATE: XXKST{PLAN}",
                "cannot publish to tcp://b:1 out: No space left",
                "No space left",
            ],
            "cannot publish to tcp://b:1 out: No space left",
        ),
        (
            [
                f"{FAILED}Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times,"
                " most recent failure: Lost task 0.0 (TID 1) (executor driver):"
                " java.lang.IllegalArgumentException: cannot write a row to a link: its value is"
                " null\n\tat io.speck.spark.sink.RowCollector.write(RowCollector.java:55)",
                "",
            ],
            "cannot write a row to a link: its value is null",
        ),
        (
            [
                f"{FAILED}[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred",
                "An exception was raised by the Python Proxy. Return Message: Traceback (most"
                ' recent call last):\n  File "a.py", line 1, in store\n'
                "OSError: [Errno 28] No space left\n",
            ],
            "cannot go on: OSError: [Errno 28] No space left",
        ),
        (
            ["[UNRESOLVED_COLUMN] No column x. SQLSTATE: 42703"],
            "cannot go on: [UNRESOLVED_COLUMN] No column x.",
        ),
        (
            [
                f"{FAILED}Job aborted: Lost task 0.0: PythonException: [PYTHON_EXCEPTION] Error: x",
                "[PYTHON_EXCEPTION] ZeroDivisionError: by zero: \n"
                "Traceback (most recent call last):\n"
                '  File "a.py", line 2, in divide\nZeroDivisionError: by zero\n SQLSTATE: 38000',
            ],
            "cannot go on: ZeroDivisionError: by zero",
        ),
        ([""], "cannot go on: Spark does not say why"),
        (
            [],
            "cannot go on: the JVM of Spark has ended; if its log says OutOfMemoryError, give the"
            " job more memory with memory_mb",
        ),
    ],
)
def test_a_failure_is_one_line(messages: list[str], line: str) -> None:
    assert explain(messages) == line


@pytest.mark.parametrize(
    ("message", "change"),
    [
        (
            "Stateful operators in the metadata: [(OperatorId: 0 -> OperatorName: stateStoreSave)];"
            " Stateful operators in current batch: [(OperatorId: 0 -> OperatorName: dedupe),"
            " (OperatorId: 1 -> OperatorName: stateStoreSave)].",
            "its operators with state were stateStoreSave and are dedupe, stateStoreSave",
        ),
        (
            "Provided key schema does not match existing state key schema.\nPlease check number and"
            " type of fields.\nExisting key_schema=StructType(StructField(k,LongType,true)) and new"
            " key_schema=StructType(StructField(k,StringType,true),StructField(d,DecimalType(9,2),"
            "true)).\nIf you want to force running the query",
            "the key of its state was (k long) and is (k string, d decimal)",
        ),
        (
            "assertion failed: There are [1] sources in the checkpoint offsets and now there are"
            " [2] sources requested by the query. Cannot continue.",
            "it had 1 sources, and has 2",
        ),
        (
            "Cannot restart streaming query with stateful operators because the state directory is"
            " empty or missing.\nStateful operators in current batch: [(OperatorId: 0 ->"
            " OperatorName: dedupe)].\nThis typically occurs",
            "it had no operators with state, and has dedupe",
        ),
    ],
)
def test_what_does_not_fit_the_checkpoint_is_named(message: str, change: str) -> None:
    assert explain([f"{FAILED}Job aborted", f"[STATE] {message} SQLSTATE: 42K03"]) == (
        f"cannot go on from its checkpoint: the program has changed: {change}; go back to the"
        " former program, or let the job begin anew with upgrade: stateless"
    )


def test_a_jvm_that_has_ended_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert list_messages(ConnectionRefusedError(111, "Connection refused")) == []
    with pytest.raises(SystemExit, match=r"^cannot go on: the JVM of"), explaining():
        raise ConnectionRefusedError(111, "Connection refused")
    assert "Traceback" in capsys.readouterr().err
