import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from speck.errors import BrokerRefusedError, EngineRefusedError, PermanentError
from speck.sites.credentials import Credentials, read_credentials
from speck.tls.authority import Authority
from speck.tls.contexts import ClientTls

ADDRESS = "tcp://172.16.39.7:1883"


def write(folder: Path, text: str, mode: int = 0o600) -> Path:
    file = folder / "edge-a"
    file.write_text(text)
    file.chmod(mode)
    return file


def test_all_keys(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "# made on Monday\n\nuser = speck\npassword=a=b#c\nca=ca.pem\naddress=mqtt://172.16.39.7/\n",
    )

    assert read_credentials(file, ADDRESS) == Credentials(
        "speck", "a=b#c", ClientTls(tmp_path / "ca.pem")
    )


TABLE = json.loads((Path(__file__).parents[2] / "data/credentials.json").read_text("utf-8"))
"""The reader at the engines, Credentials.java, is tested with the same table."""


@pytest.mark.parametrize("row", TABLE["valid"], ids=lambda row: str(row["name"]))
def test_files_are_read_as_engines_do(tmp_path: Path, row: dict[str, str]) -> None:
    file = tmp_path / "edge-a"
    file.write_bytes(bytes.fromhex(row["hex"]))
    file.chmod(0o600)
    credentials = read_credentials(file, ADDRESS)
    assert (credentials.user, credentials.password) == (row["user"], row["password"])


@pytest.mark.parametrize("row", TABLE["not_utf8"], ids=lambda row: str(row["name"]))
def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path, row: dict[str, str]) -> None:
    file = tmp_path / "edge-a"
    file.write_bytes(bytes.fromhex(row["hex"]))
    file.chmod(0o600)
    with pytest.raises(BrokerRefusedError, match=r"cannot read the credentials in .*utf-8"):
        read_credentials(file, ADDRESS)


def test_a_password_is_not_shown(tmp_path: Path) -> None:
    file = write(tmp_path, "user=speck\npassword=hush\n")

    assert "hush" not in repr(read_credentials(file, ADDRESS))


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = write(tmp_path, "user=speck\n", mode)

    with pytest.raises(BrokerRefusedError, match=f"mode {mode:04o} .* run: chmod 0600 {file}"):
        read_credentials(file, ADDRESS)


def test_a_stricter_mode_is_fine(tmp_path: Path) -> None:
    assert read_credentials(write(tmp_path, "user=u\n", 0o400), ADDRESS).user == "u"


def test_an_address_that_jobs_could_not_compare_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, "user=speck\naddress=tcp://b\u00fccher.test\n")

    with pytest.raises(BrokerRefusedError, match=r"ASCII form, tcp://xn--bcher-kva\.test:1883"):
        read_credentials(file, "tcp://xn--bcher-kva.test:1883")


def test_credentials_of_another_broker_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path, "user=speck\naddress=tcp://172.16.39.8:1883\n")

    with pytest.raises(BrokerRefusedError, match=r"they are for tcp://172\.16\.39\.8:1883"):
        read_credentials(file, ADDRESS)


@pytest.mark.parametrize("line", ["hush", "pasword=hush", "=hush"])
def test_a_wrong_line_is_refused_without_showing_it(tmp_path: Path, line: str) -> None:
    file = write(tmp_path, f"user=speck\n{line}\n")

    with pytest.raises(BrokerRefusedError, match="line 2 is none of user=") as error:
        read_credentials(file, ADDRESS)
    assert "hush" not in str(error.value)


def test_a_password_needs_a_user(tmp_path: Path) -> None:
    with pytest.raises(BrokerRefusedError, match="a password but no user"):
        read_credentials(write(tmp_path, "password=x\n"), ADDRESS)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BrokerRefusedError, match=r"cannot read the credentials in .*/edge-a"):
        read_credentials(tmp_path / "edge-a", ADDRESS)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_an_authority_file_that_is_none_is_named(tmp_path: Path, content: str | None) -> None:
    ca = tmp_path / "ca.pem"
    if content is not None:
        ca.write_text(content)

    with pytest.raises(PermanentError, match=r"cannot use the certificate authority .*ca\.pem"):
        Credentials(tls=ClientTls(ca)).context("mqtt")


def test_the_machine_s_own_authorities_are_read_once() -> None:
    assert Credentials().context("mqtt") is Credentials().context("mqtt")


def test_contexts_of_two_protocols_are_not_shared() -> None:
    assert Credentials().context("mqtt") is not Credentials().context("http")


def test_one_file_serves_a_broker_and_an_engine(tmp_path: Path) -> None:
    (tmp_path / "a.key").touch(0o600)
    file = write(tmp_path, "address=ssl://pi https://pi:8081\nca=ca.crt\ncert=a.crt\nkey=a.key\n")

    login = Credentials(tls=ClientTls(tmp_path / "ca.crt", tmp_path / "a.crt", tmp_path / "a.key"))
    assert read_credentials(file, "ssl://pi:8883") == login
    assert read_credentials(file, "https://pi:8081", EngineRefusedError) == login
    with pytest.raises(EngineRefusedError, match="they are for ssl://pi https://pi:8081"):
        read_credentials(file, "https://other:8081", EngineRefusedError)


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "a.key"
    key.touch()
    key.chmod(0o644)

    with pytest.raises(BrokerRefusedError, match=f"run: chmod 0600 {key}"):
        read_credentials(write(tmp_path, "cert=a.crt\nkey=a.key\n"), ADDRESS)


def test_a_key_needs_a_certificate(tmp_path: Path) -> None:
    with pytest.raises(BrokerRefusedError, match="a key but no cert"):
        read_credentials(write(tmp_path, "key=a.key\n"), ADDRESS)


def test_a_renewed_certificate_is_read_again(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "ca", datetime.now(UTC))
    login = Credentials(tls=ClientTls(authority.cert))
    before = login.context("mqtt")
    assert login.context("mqtt") is before
    Authority.create(tmp_path / "ca", datetime.now(UTC), force=True)
    assert login.context("mqtt") is not before
