from pathlib import Path

import pytest

from binders.mqtt.credentials import Credentials, read_credentials, tls_context
from speck.errors import BrokerRefusedError

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

    assert read_credentials(file, ADDRESS) == Credentials("speck", "a=b#c", tmp_path / "ca.pem")


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

    with pytest.raises(BrokerRefusedError, match=r"cannot use the authority file .*ca\.pem"):
        tls_context(ca)


def test_the_machine_s_own_authorities_are_read_once() -> None:
    assert tls_context(None) is tls_context(None)
