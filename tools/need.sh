#!/bin/sh
# need.sh PROGRAM PACKAGE WHAT [MAJOR]: PROGRAM is there afterwards (javac in version MAJOR or
# later), or one sentence says what to install.
# Installs PACKAGE with apt-get when that is possible without asking for a password.
set -eu
program=$1 package=$2 what=$3 major=${4:-0}

found() {
    { PATH="$PATH:/usr/sbin:/sbin" command -v "$program" >/dev/null 2>&1 ||
        [ -x ".cache/$program/usr/sbin/$program" ]; } && new_enough
}

new_enough() {
    [ "$major" = 0 ] ||
        [ "$("$program" -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p')" -ge "$major" ]
}

found && exit 0
if command -v apt-get >/dev/null 2>&1; then
    as_root=
    if [ "$(id -u)" = 0 ] || { as_root="sudo -n" && sudo -n true 2>/dev/null; }; then
        echo "installing $package (apt-get)" >&2
        log=$(mktemp)
        trap 'rm -f "$log"' EXIT
        get="$as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120"
        if { $get install -y --no-install-recommends "$package" ||
            { $get update && $get install -y --no-install-recommends "$package"; }; } \
            >"$log" 2>&1 && found; then
            exit 0
        fi
        tail -n 5 "$log" >&2
    fi
fi
echo "cannot find $program, which $what: install it, on Debian with 'apt-get install $package'" >&2
exit 1
