#!/bin/sh
# Starts the broker of a site, in a container or under systemd.
#
#   SPECK_MQTT_URL          the broker's address as sites register it, tcp://host:port (needed)
#   SPECK_MQTT_LISTEN       address to listen on, 127.0.0.1
#   SPECK_MQTT_PORT         port, 1883
#   SPECK_MQTT_DATA         folder of the broker's state, /var/lib/mosquitto
#   SPECK_MQTT_RUN          folder for what is made at each start, /run/mosquitto
#   SPECK_MQTT_CONF         folder of mosquitto.conf and acl, /etc/speck/mosquitto
#   SPECK_MQTT_USERS        further users, as mosquitto_passwd writes them, /etc/speck/mosquitto.users
#   SPECK_CREDENTIALS_DIR   credentials; those of SPECK_MQTT_URL become users, /etc/speck/credentials
#   SPECK_TLS_NAME          name of the certificate in the credentials (NAME.crt, NAME.key, ca.crt):
#                           the broker speaks TLS only, with clients that have a certificate
#   SPECK_TLS_USERS         common names of the certificates that speck and its jobs present
#
# Further arguments go to mosquitto.
set -eu
umask 077

fail() {
    echo "speck-broker: cannot start: $1" >&2
    exit 1
}

value() {
    sed -n "s/^$2=//p" "$1" | head -n 1
}

export PATH="$PATH:/usr/sbin"
url=${SPECK_MQTT_URL:-}
url=${url%/}
conf=${SPECK_MQTT_CONF:-/etc/speck/mosquitto}
run=${SPECK_MQTT_RUN:-/run/mosquitto}
users=${SPECK_MQTT_USERS:-/etc/speck/mosquitto.users}
# systemd hands credentials over in a folder of its own, readable for this service alone
credentials=${CREDENTIALS_DIRECTORY:-${SPECK_CREDENTIALS_DIR:-/etc/speck/credentials}}

[ -n "$url" ] || fail "SPECK_MQTT_URL is not set; set it to the address that the site registers"
command -v mosquitto >/dev/null || fail "mosquitto is missing; run apt-get install mosquitto"

: > "$run/passwords"
tls=${SPECK_TLS_NAME:-}
# Fills $credential with a file of the credentials; systemd puts the credential's name before its own.
find_file() {
    for credential in "$credentials/$1" "$credentials/broker_$1"; do
        [ -f "$credential" ] && return
    done
    fail "$1 is not in $credentials; issue it with speck ca issue"
}

for file in "$credentials"/*; do
    [ -z "$tls" ] || break # certificates take the place of passwords
    [ -f "$file" ] || continue
    address=$(value "$file" address)
    [ "${address%/}" = "$url" ] || continue
    user=$(value "$file" user)
    password=$(value "$file" password)
    [ -n "$user" ] && [ -n "$password" ] || fail "$file has no user or no password"
    # mosquitto_passwd would take what stands before the colon for the whole password
    case $user$password in
    *:*) fail "$file has a user or password with a colon; take another one" ;;
    esac
    printf '%s:%s\n' "$user" "$password" >> "$run/passwords"
done
[ -n "$tls" ] || [ -s "$run/passwords" ] ||
    fail "no file in $credentials has address=$url; make one with new-credentials.sh"
# hashed in place: a password on a command line would show in the list of processes
[ -n "$tls" ] || mosquitto_passwd -U "$run/passwords"
if [ -f "$users" ]; then
    cat "$users" >> "$run/passwords"
fi

sed -e "s|\${SPECK_MQTT_LISTEN}|${SPECK_MQTT_LISTEN:-127.0.0.1}|" \
    -e "s|\${SPECK_MQTT_PORT}|${SPECK_MQTT_PORT:-1883}|" \
    -e "s|\${SPECK_MQTT_DATA}|${SPECK_MQTT_DATA:-/var/lib/mosquitto}|" \
    -e "s|\${SPECK_MQTT_PASSWORDS}|$run/passwords|" \
    -e "s|\${SPECK_MQTT_ACL}|$run/acl|" \
    "$conf/mosquitto.conf" > "$run/mosquitto.conf"
cat "$conf/acl" > "$run/acl"
if [ -n "$tls" ]; then
    find_file ca.crt && printf 'cafile %s\n' "$credential" >> "$run/mosquitto.conf"
    find_file "$tls.crt" && printf 'certfile %s\n' "$credential" >> "$run/mosquitto.conf"
    find_file "$tls.key" && printf 'keyfile %s\n' "$credential" >> "$run/mosquitto.conf"
    printf 'require_certificate true\nuse_identity_as_username true\n' >> "$run/mosquitto.conf"
    for user in ${SPECK_TLS_USERS:-$tls service}; do
        # shellcheck disable=SC2016  # the broker's own topic begins with a dollar sign
        printf '\nuser %s\ntopic readwrite #\ntopic read $SYS/#\n' "$user" >> "$run/acl"
    done
fi
exec mosquitto -c "$run/mosquitto.conf" "$@"
