#!/bin/bash
# every_runtime.sh: unit tests and demo with every Python (3.11 to 3.13), and the demo with every Java
# (17 or later), on this machine: those of PATH, pyenv and /usr/lib/jvm. Each Python gets an
# environment in .cache, which stays for the next time.
set -u
failed=()

try() {
    local what=$1
    shift
    echo "== $what" >&2
    "$@" && return
    failed+=("$what")
    return 1
}

# PATH of one interpreter of each version from 3.11 to 3.13
pythons() {
    for python in python3.11 python3.12 python3.13 /usr/bin/python3 \
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[123].*/bin/python3; do
        "$python" -c 'import sys
if (3, 11) <= sys.version_info[:2] <= (3, 13):
    print("%d.%d" % sys.version_info[:2], sys.executable)' 2>/dev/null
    done | sort -u -k 1,1
}

# folder of one JDK or JRE of each version
javas() {
    for home in ${JAVA_HOME:+"$JAVA_HOME"} /usr/lib/jvm/*/; do
        major=$("$home/bin/java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
        if [ "${major:-0}" -ge 17 ]; then
            echo "$major ${home%/}"
        fi
    done | sort -u -n -k 1,1
}

while read -r version python; do
    venv=.cache/venv-$version
    if try "set-up with Python $version" env PYTHON="$python" tools/venv.sh "$venv" </dev/null; then
        try "unit tests with Python $version" \
            "$venv"/bin/python -m pytest -q -n 2 tests/unit tests/properties </dev/null
        try "demo with Python $version" "$venv"/bin/python -m traffic.demo </dev/null
    fi
done < <(pythons)
while read -r version home; do
    try "demo with Java $version" env JAVA_HOME="$home" .venv/bin/python -m traffic.demo </dev/null
done < <(javas)

if [ "${#failed[@]}" -gt 0 ]; then
    printf 'cannot pass: %s\n' "${failed[@]}" >&2
    exit 1
fi
