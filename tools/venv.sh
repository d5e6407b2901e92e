#!/bin/sh
# venv.sh: the virtual environment .venv in the checkout, with speck (editable) and its extras.
# $PYTHON: the interpreter to make it with; else the first usable Python of 3.11 to 3.12.
set -eu

usable() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null
}

choose() {
    for python in ${PYTHON:-python3.11 python3 python3.12 /usr/bin/python3}; do
        if usable "$python"; then
            echo "$python"
            return
        fi
    done
    echo "cannot find ${PYTHON:-Python 3.11 or 3.12}: install it, on Debian with" \
        "'apt-get install python3.11-venv', or name it (make PYTHON=/path/to/python3.11)" >&2
    exit 1
}

if ! { [ -x .venv/bin/python ] && usable .venv/bin/python && .venv/bin/python -m pip --version; } \
    >/dev/null 2>&1; then
    python=$(choose)
    if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
        echo "cannot make a virtual environment with $python: it lacks ensurepip; on Debian:" \
            "'apt-get install python3-venv'" >&2
        exit 1
    fi
    echo "making .venv with $("$python" --version)" >&2
    "$python" -m venv --clear .venv
fi
echo "installing Python packages into .venv (Flink's and Spark's jars among them: 800 MB at first)" >&2
.venv/bin/python -m pip install --quiet --disable-pip-version-check \
    -c constraints.txt -e '.[fog,analyzer,dev]'
