"""Certificate authorities for tests, made with openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Authority:
    """An authority whose certificate and key lie in `folder`."""

    folder: Path

    @property
    def cert(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def _key(self) -> Path:
        return self.folder / "ca.key"

    @classmethod
    def create(cls, folder: Path) -> Authority:
        """A new one."""
        folder.mkdir(parents=True)
        made = cls(folder)
        subject = ("-subj", f"/CN={folder.name}", "-days", "2")
        _openssl("req", "-x509", *_NEW_KEY, "-keyout", made._key, "-out", made.cert, *subject)
        return made

    def issue(self, name: str, *subject_names: str) -> tuple[Path, Path]:
        """A certificate and its key; `subject_names` are like `IP:127.0.0.1` or `DNS:edge-a`."""
        cert, key, request = (self.folder / f"{name}.{end}" for end in ("pem", "key", "csr"))
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={','.join(subject_names)}\n")
        _openssl("req", *_NEW_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        signer = ("-CA", self.cert, "-CAkey", self._key, "-CAcreateserial", "-days", "2")
        _openssl("x509", "-req", "-in", request, *signer, "-out", cert, "-extfile", extensions)
        return cert, key
