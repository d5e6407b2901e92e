#!/usr/bin/env bash
# beside.sh LOG COMMAND... -- COMMAND...: the first command in the background, its output in LOG,
# beside the second one. LOG is shown when the first fails. Exit status: the second's when that
# fails, else the first's.
set -u

log=$1
shift
background=()
while [ "$1" != -- ]; do
    background+=("$1")
    shift
done
shift

mkdir -p "$(dirname "$log")"
"${background[@]}" >"$log" 2>&1 &
pid=$!
trap 'kill "$pid" 2>/dev/null; exit 130' INT TERM

"$@"
status=$?
wait "$pid"
beside=$?
if [ "$beside" -ne 0 ]; then
    echo "cannot pass: '${background[*]}' ended with status $beside; it said ($log):" >&2
    cat "$log" >&2
fi
if [ "$status" -ne 0 ]; then
    exit "$status"
fi
exit "$beside"
