#!/bin/sh
# Makes the credentials of a site's broker: new-credentials.sh FOLDER NAME tcp://host:port
# The file goes to the control plane, to the broker, and to every engine whose jobs use the broker.
set -eu
umask 077
if [ $# -ne 3 ]; then
    echo "usage: new-credentials.sh FOLDER NAME tcp://host:port" >&2
    exit 1
fi
mkdir -p "$1"
file="$1/$2"
if [ -e "$file" ]; then
    echo "new-credentials.sh: cannot make $file: it is there already; remove it first" >&2
    exit 1
fi
password=$(head -c 24 /dev/urandom | base64 | tr '+/' '-_')
printf 'user=speck\npassword=%s\naddress=%s\n' "$password" "${3%/}" > "$file"
