"""The jar with which an engine job id is used up without running any code of users.

Flink refuses an id only once a job was submitted under it, and only a `main` submits jobs. This one
is ours. It corresponds to

    package io.speck;

    public class Fence {
        public static void main(String[] args) throws Exception {
            StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
            env.fromSequence(0, 0).print();
            env.execute("fence");
        }
    }

and is assembled here: speck can then remove jobs wherever its Python package is installed, without
a JDK and without the edge jobs, and Flink 1.20 and 2.x take the same class file. The format is that
of the Java Virtual Machine Specification, chapter 4; code without branches needs no stack maps.
"""

from __future__ import annotations

import hashlib
import struct
import zipfile
from pathlib import Path

from speck.binding import Artifact, ArtifactKind, Submission

FENCE_CLASS = "io.speck.Fence"

_JAVA_8 = 52
_PUBLIC, _STATIC, _SUPER = 0x0001, 0x0008, 0x0020
_EPOCH = (1980, 1, 1, 0, 0, 0)

_ENVIRONMENT = "org/apache/flink/streaming/api/environment/StreamExecutionEnvironment"
_STREAM = "org/apache/flink/streaming/api/datastream/DataStream"


def make_fence(engine_job_id: str, folder: Path) -> Submission:
    """The job that uses an id up: from a state that cannot be read. Its jar is in `folder`."""
    jar, sha256 = write_fence_jar(folder)
    nowhere = f"file:///speck/fenced/{engine_job_id}"
    artifact = Artifact(sha256, jar, ArtifactKind.JAR)
    return Submission(engine_job_id, "the fence", artifact, FENCE_CLASS, (), state=nowhere)


def write_fence_jar(folder: Path) -> tuple[Path, str]:
    """Write the jar into `folder`; returns the file and its SHA-256, which is always the same."""
    jar = folder / "speck-fence.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for name, content in (
            ("META-INF/MANIFEST.MF", b"Manifest-Version: 1.0\r\n\r\n"),
            (f"{FENCE_CLASS.replace('.', '/')}.class", _assemble_class()),
        ):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)
    return jar, hashlib.sha256(jar.read_bytes()).hexdigest()


class _Constants:
    """A constant pool. Each method returns the index of a constant, and adds it if it is new."""

    def __init__(self) -> None:
        self._indexes: dict[bytes, int] = {}

    def _add(self, constant: bytes) -> int:
        return self._indexes.setdefault(constant, len(self._indexes) + 1)

    def text(self, text: str) -> int:
        return self._add(struct.pack(">BH", 1, len(text)) + text.encode("ascii"))

    def type(self, name: str) -> int:
        return self._add(struct.pack(">BH", 7, self.text(name)))

    def string(self, text: str) -> int:
        return self._add(struct.pack(">BH", 8, self.text(text)))

    def method(self, owner: str, name: str, descriptor: str) -> int:
        signature = struct.pack(">BHH", 12, self.text(name), self.text(descriptor))
        return self._add(struct.pack(">BHH", 10, self.type(owner), self._add(signature)))

    def dump(self) -> bytes:
        return struct.pack(">H", len(self._indexes) + 1) + b"".join(self._indexes)


def _assemble_class() -> bytes:
    constants = _Constants()
    code = _assemble_main(constants)
    # a stack of five: the environment and two longs; two locals: args and the environment
    attribute = struct.pack(">HHI", 5, 2, len(code)) + code + struct.pack(">HH", 0, 0)
    main = struct.pack(
        ">HHHHHI",
        _PUBLIC | _STATIC,
        constants.text("main"),
        constants.text("([Ljava/lang/String;)V"),
        1,
        constants.text("Code"),
        len(attribute),
    )
    own, parent = constants.type(FENCE_CLASS.replace(".", "/")), constants.type("java/lang/Object")
    head = struct.pack(">IHH", 0xCAFEBABE, 0, _JAVA_8) + constants.dump()
    body = struct.pack(">HHHHHH", _PUBLIC | _SUPER, own, parent, 0, 0, 1)
    return head + body + main + attribute + struct.pack(">H", 0)


def _assemble_main(constants: _Constants) -> bytes:
    source, sink = f"L{_STREAM}Source;", f"L{_STREAM}Sink;"
    result = "Lorg/apache/flink/api/common/JobExecutionResult;"
    get = constants.method(_ENVIRONMENT, "getExecutionEnvironment", f"()L{_ENVIRONMENT};")
    sequence = constants.method(_ENVIRONMENT, "fromSequence", f"(JJ){source}")
    print_it = constants.method(_STREAM, "print", f"(){sink}")
    execute = constants.method(_ENVIRONMENT, "execute", f"(Ljava/lang/String;){result}")
    return b"".join(
        [
            struct.pack(">BH", 0xB8, get),  # invokestatic
            b"\x4c\x2b\x09\x09",  # astore_1, aload_1, lconst_0, lconst_0
            struct.pack(">BH", 0xB6, sequence),  # invokevirtual
            struct.pack(">BH", 0xB6, print_it),
            b"\x57\x2b",  # pop, aload_1
            struct.pack(">BB", 0x12, constants.string("fence")),  # ldc
            struct.pack(">BH", 0xB6, execute),
            b"\x57\xb1",  # pop, return
        ]
    )
