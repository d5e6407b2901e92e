#!/bin/sh
# venv.sh [FOLDER]: the virtual environment FOLDER (.venv) in the checkout, with speck (editable)
# and its extras.
# $PYTHON: the interpreter to make it with; else the first usable Python of 3.11 to 3.13.
set -eu
venv=${1:-.venv}

usable() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
}

choose() {
    for python in ${PYTHON:-python3.11 python3 python3.12 python3.13 /usr/bin/python3}; do
        if usable "$python"; then
            echo "$python"
            return
        fi
    done
    echo "cannot find ${PYTHON:-Python 3.11, 3.12 or 3.13}: install it, on Debian with" \
        "'apt-get install python3-venv', or name it (make PYTHON=/path/to/python3.13)" >&2
    exit 1
}

# plyvel has no wheel for every Python, and is then built with LevelDB's headers
need_leveldb() {
    "$venv"/bin/python -m pip install --quiet --disable-pip-version-check --dry-run --no-deps \
        --only-binary plyvel -c constraints.txt plyvel >/dev/null 2>&1 && return
    tools/need.sh c++ g++ "builds plyvel, of which there is no wheel for this Python"
    tools/need.sh leveldb/db.h libleveldb-dev "builds plyvel, of which there is no wheel for this Python"
    header=$("$venv"/bin/python -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h
    if ! [ -e "$header" ]; then
        version=$("$venv"/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        tools/need.sh "$header" "python$version-dev" "builds plyvel, of which there is no wheel for this Python"
    fi
}

if ! { [ -x "$venv"/bin/python ] && usable "$venv"/bin/python &&
    "$venv"/bin/python -m pip --version; } >/dev/null 2>&1; then
    python=$(choose)
    if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
        echo "cannot make a virtual environment with $python: it lacks ensurepip; on Debian:" \
            "'apt-get install python3-venv'" >&2
        exit 1
    fi
    echo "making $venv with $("$python" --version)" >&2
    "$python" -m venv --clear "$venv"
fi
echo "installing Python packages into $venv (Flink's and Spark's jars among them: 800 MB at first)" >&2
need_leveldb
# Python compiles the modules that it imports: a small part of them all
"$venv"/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
    -c constraints.txt -e '.[fog,analyzer,kafka,dev]'
