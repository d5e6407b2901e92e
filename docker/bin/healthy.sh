#!/bin/bash
# Whether a server answers: healthy.sh PORT checks that it listens (no login needed),
# healthy.sh PORT PATH that it answers HTTP 200; with SPECK_TLS_NAME or SPECK_TLS_CERT set, where
# only clients with a certificate get an answer, that it listens.
# Bash alone does it, so that the images need no HTTP client.
set -eu
address=${SPECK_HEALTH_ADDRESS:-127.0.0.1}
exec 3<>"/dev/tcp/$address/$1"
[ $# -ge 2 ] && [ -z "${SPECK_TLS_NAME:-}${SPECK_TLS_CERT:-}" ] || exit 0
printf 'GET %s HTTP/1.0\r\nHost: %s\r\n\r\n' "$2" "$address" >&3
read -r -t 5 _ status _ <&3
[ "$status" = 200 ]
