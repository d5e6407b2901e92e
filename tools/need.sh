#!/bin/sh
# need.sh WHAT-TO-FIND PACKAGE WHY [MAJOR]: it is there afterwards, or one sentence says what to
# install. WHAT-TO-FIND is a program (javac in version MAJOR or later), or a C header by its path
# below an include folder (leveldb/db.h).
# Installs PACKAGE with apt-get when that is possible without asking for a password.
set -eu
wanted=$1 package=$2 why=$3 major=${4:-0}

found() {
    case $wanted in
    *.h) echo "#include <$wanted>" | c++ -E -x c++ - >/dev/null 2>&1 ;;
    *) { PATH="$PATH:/usr/sbin:/sbin" command -v "$wanted" >/dev/null 2>&1 ||
        [ -x ".cache/$wanted/usr/sbin/$wanted" ]; } && new_enough ;;
    esac
}

new_enough() {
    [ "$major" = 0 ] ||
        [ "$("$wanted" -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p')" -ge "$major" ]
}

found && exit 0
if command -v apt-get >/dev/null 2>&1; then
    as_root=
    if [ "$(id -u)" = 0 ] || { as_root="sudo -n" && sudo -n true 2>/dev/null; }; then
        echo "installing $package (apt-get)" >&2
        log=$(mktemp)
        trap 'rm -f "$log"' EXIT
        get="$as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120"
        # set-up installs side by side, and `apt-get update` does not wait for another one
        if (
            flock 9
            $get install -y --no-install-recommends "$package" ||
                { $get update && $get install -y --no-install-recommends "$package"; }
        ) 9>"${TMPDIR:-/tmp}/speck-apt-$(id -u).lock" >"$log" 2>&1 && found; then
            exit 0
        fi
        tail -n 5 "$log" >&2
    fi
fi
echo "cannot find $wanted, which $why: install it, on Debian with 'apt-get install $package'" >&2
exit 1
