"""Reasons out of Flink's stack traces; the traces are shortened from real answers."""

from __future__ import annotations

import pytest

from binders.flink.failures import (
    LONGEST_REASON,
    Refusal,
    list_causes,
    may_pass,
    place_of,
    reason_of,
)
from speck.errors import DuplicateJobError, EngineRefusedError, TransientError, UnreachableError

REST = "org.apache.flink.runtime.rest.handler.RestHandlerException"
INVOCATION = "org.apache.flink.client.program.ProgramInvocationException"
CANCELLED = "java.util.concurrent.CancellationException"
"""What a look at a job is answered in the moment in which its JobMaster ends."""
FRAME = "\n\tat org.apache.flink.runtime.Some.method(Some.java:88)\n\t... 4 more\n"

FAILED_MAIN = (
    "Internal server error.\n<Exception on server side:\n"
    f"{INVOCATION}: The main method caused an error: cannot read the table{FRAME}"
    f"Caused by: java.lang.IllegalStateException: cannot read the table{FRAME}"
    "\nEnd of exception on server side>"
)
MISSING_CLASS = (
    "<Exception on server side:\njava.util.concurrent.CompletionException: "
    f"{INVOCATION}: The program's entry point class 'Nope' was not found in the jar file.{FRAME}"
    f"Caused by: {INVOCATION}: The program's entry point class 'Nope' was not found in the jar"
    f" file.{FRAME}Caused by: java.lang.ClassNotFoundException: Nope{FRAME}"
)
BROKEN_JAR = (
    f"<Exception on server side:\n{INVOCATION}: Error while opening jar file '/u/a.jar'{FRAME}"
    f"Caused by: java.util.zip.ZipException: zip END header not found{FRAME}"
)


def submission_failed(cause: str) -> str:
    return (
        f"{REST}: Could not execute application.{FRAME}"
        "Caused by: java.util.concurrent.CompletionException: org.apache.flink.util."
        f"FlinkRuntimeException: Could not execute application.{FRAME}"
        f"Caused by: {INVOCATION}: The main method caused an error: Failed to execute job"
        f" 'trial'.{FRAME}Caused by: {cause}{FRAME}"
    )


DUPLICATE_1 = submission_failed(
    "org.apache.flink.runtime.client.DuplicateJobSubmissionException: Job has already been"
    " submitted."
)
DUPLICATE_2 = submission_failed(
    "org.apache.flink.runtime.client.DuplicateApplicationSubmissionException: Application has"
    " already been submitted."
)
NO_SAVEPOINT = submission_failed(
    "java.io.FileNotFoundException: Cannot find checkpoint or savepoint file/directory '/x' on"
    " file system 'file'."
)


@pytest.mark.parametrize(
    ("trace", "reason"),
    [
        (
            FAILED_MAIN,
            "ProgramInvocationException: The main method caused an error: cannot read the table",
        ),
        (
            MISSING_CLASS,
            "ProgramInvocationException: The program's entry point class 'Nope' was not found in"
            " the jar file.",
        ),
        (
            BROKEN_JAR,
            "ProgramInvocationException: Error while opening jar file '/u/a.jar':"
            " ZipException: zip END header not found",
        ),
        (
            NO_SAVEPOINT,
            "the state to resume from no longer exists (set `upgrade: stateless` to start it"
            " without state, or destroy it and apply again): Cannot find checkpoint or savepoint"
            " file/directory '/x' on file system 'file'.",
        ),
        (
            "java.lang.Exception: Could not restore\n"
            "Caused by: java.io.FileNotFoundException: /fog/a/chk-1008/7f (No such file)",
            "the state to resume from no longer exists (set `upgrade: stateless` to start it"
            " without state, or destroy it and apply again): /fog/a/chk-1008/7f (No such file)",
        ),
        (
            f"{REST}: No jobs included in application.{FRAME}",
            "main returned without calling execute(): it has built no job",
        ),
        (
            f"{REST}: Job could not be found.{FRAME}",
            "RestHandlerException: Job could not be found.",
        ),
        ("Unable to load requested file /nope.", "Unable to load requested file /nope."),
        (
            "java.lang.NullPointerException\n\tat a.B.c(B.java:1)",
            "NullPointerException at B.c(B.java:1)",
        ),
        ("", "the engine gave no reason"),
    ],
)
def test_the_reason_is_the_line_that_says_most(trace: str, reason: str) -> None:
    assert reason_of(trace) == reason


def test_a_message_may_take_several_lines() -> None:
    trace = f"java.lang.Error: one\n  two\nthree{FRAME}Caused by: a.Inner: deep\nand deeper{FRAME}"
    causes = [(cause.name, cause.message) for cause in list_causes(trace)]
    assert causes == [("Error", "one two three"), ("Inner", "deep and deeper")]


def test_the_place_is_the_line_of_the_user_s_code_that_raised_the_cause() -> None:
    frames = "\n\tat java.base/java.io.File.open(File.java:1)\n\tat shop.Ask.open(Ask.java:7)"
    inner = f"java.io.IOException: cannot ask host-x{frames}"
    assert place_of(inner) == "IOException at Ask.open(Ask.java:7)"
    wrapped = f"java.lang.RuntimeException: in vain{FRAME}Caused by: {inner}"
    assert place_of(wrapped) == "IOException at Ask.open(Ask.java:7)"
    assert place_of(f"java.io.IOException: cannot ask{FRAME}") == ""
    assert place_of("") == ""


def test_a_reason_is_never_long() -> None:
    assert len(reason_of("java.lang.Error: " + "x" * 10_000)) == LONGEST_REASON


@pytest.mark.parametrize("text", [DUPLICATE_1, DUPLICATE_2])
def test_a_known_id_is_a_duplicate_in_flink_1_and_2(text: str) -> None:
    error = Refusal(400, text).error("start A")
    assert isinstance(error, DuplicateJobError)
    assert str(error) == "cannot start A: the engine knows this job id already"


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (500, FAILED_MAIN, EngineRefusedError),
        (400, NO_SAVEPOINT, EngineRefusedError),
        (503, "Service temporarily unavailable due to an ongoing leader election.", TransientError),
        (500, "java.util.concurrent.TimeoutException: Invocation timed out", TransientError),
        (500, "org.apache.flink.runtime.rpc.exceptions.FencingTokenException: x", TransientError),
        (500, f"{REST}: null{FRAME}Caused by: {CANCELLED}{FRAME}", TransientError),
        (500, "java.lang.OutOfMemoryError: Metaspace", TransientError),
        (504, "upstream timed out", UnreachableError),
    ],
)
def test_status_and_text_decide_the_kind(status: int, text: str, kind: type[Exception]) -> None:
    error = Refusal(status, text).error("start A")
    assert type(error) is kind
    assert str(error).startswith("cannot start A: ")
    assert "\n" not in str(error)


def test_only_flinks_own_words_make_a_job_unknown() -> None:
    unknown = f"org.apache.flink.runtime.rest.NotFoundException: Job {'a' * 32} not found{FRAME}"
    assert Refusal(404, unknown).job_unknown
    assert not Refusal(404, "Unable to load requested file /jobs/x.").job_unknown
    assert Refusal(500, f"{REST}: Jar file /u/1_a.jar does not exist").jar_missing


MAIN_OF_NULL = """\
org.apache.flink.client.program.ProgramInvocationException: The main method caused an error: null
\tat org.apache.flink.client.program.PackagedProgram.callMainMethod(PackagedProgram.java:372)
Caused by: java.lang.NullPointerException
\tat java.base/java.util.Objects.requireNonNull(Objects.java:233)
\tat com.example.Tables.load(Tables.java:41)
\tat com.example.ExampleJob.main(ExampleJob.java:12)
\t... 7 more
"""


def test_an_exception_without_a_message_is_named_by_the_first_line_of_user_code() -> None:
    assert reason_of(MAIN_OF_NULL) == (
        "ProgramInvocationException: The main method caused an error: NullPointerException at"
        " Tables.load(Tables.java:41)"
    )


def test_so_it_is_in_a_task() -> None:
    trace = """\
org.apache.flink.runtime.JobException: Recovery is suppressed by NoRestartBackoffTimeStrategy
\tat org.apache.flink.runtime.executiongraph.Failover.handle(Failover.java:1)
Caused by: java.lang.ArrayIndexOutOfBoundsException
\tat app//com.example.Filter$Inner.map(Filter.java:17)
\tat org.apache.flink.streaming.api.operators.StreamMap.processElement(StreamMap.java:38)
"""
    assert reason_of(trace) == "ArrayIndexOutOfBoundsException at Filter$Inner.map(Filter.java:17)"


def test_a_message_of_user_code_around_it_is_kept() -> None:
    trace = """\
java.lang.IllegalStateException: cannot read the table
\tat com.example.Filter.open(Filter.java:9)
Caused by: java.lang.NullPointerException
\tat com.example.Tables.load(Tables.java:41)
"""
    assert reason_of(trace) == (
        "IllegalStateException: cannot read the table: NullPointerException at"
        " Tables.load(Tables.java:41)"
    )


def test_a_class_that_is_absent_is_named_as_java_does() -> None:
    trace = """\
java.lang.NoClassDefFoundError: lib/Gone
\tat com.example.Filter.open(Filter.java:9)
Caused by: java.lang.ClassNotFoundException: lib.Gone
\tat java.base/java.net.URLClassLoader.findClass(URLClassLoader.java:445)
"""
    assert reason_of(trace) == "NoClassDefFoundError: lib/Gone"


@pytest.mark.parametrize(
    ("cause", "passes"),
    [
        ("org.apache.flink.runtime.jobmanager.scheduler.NoResourceAvailableException", True),
        ("java.net.ConnectException: Connection refused", True),
        ("java.lang.NoClassDefFoundError: lib/Gone", False),
        ("org.apache.flink.util.StateMigrationException: The new state serializer", False),
    ],
)
def test_missing_slots_and_servers_may_pass(cause: str, *, passes: bool) -> None:
    trace = f"java.lang.RuntimeException: failed\n\tat a.B.c(B.java:1)\nCaused by: {cause}\n"
    assert may_pass(trace) is passes
