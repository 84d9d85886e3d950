#!/bin/sh
# What the entry point of the official image does with POSTGRES_USER, POSTGRES_DB and POSTGRES_PASSWORD(_FILE). As root
# it becomes the user postgres; a pod begins as this user.
set -eu
[ "$1" = postgres ] || exec "$@"
install -d -o postgres -g postgres -m 0700 "$PGDATA"
[ "$(id -u)" != 0 ] || install -d -o postgres -g postgres /run/postgresql
as_postgres() {
    if [ "$(id -u)" = 0 ]; then setpriv --reuid=postgres --regid=postgres --init-groups "$@"; else "$@"; fi
}
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    password=${POSTGRES_PASSWORD:-}
    [ -z "${POSTGRES_PASSWORD_FILE:-}" ] || password=$(cat "$POSTGRES_PASSWORD_FILE")
    (umask 077 && printf '%s\n' "$password" >/tmp/password)
    [ "$(id -u)" != 0 ] || chown postgres /tmp/password
    as_postgres initdb --pgdata="$PGDATA" --username="$POSTGRES_USER" --pwfile=/tmp/password \
        --auth-host=scram-sha-256 --auth-local=trust --encoding=UTF8 --locale=C.UTF-8 --no-sync >/dev/null
    rm /tmp/password
    as_postgres pg_ctl -D "$PGDATA" -o '-c listen_addresses=' -w start >/dev/null
    as_postgres createdb --username="$POSTGRES_USER" "$POSTGRES_DB"
    as_postgres pg_ctl -D "$PGDATA" -w stop >/dev/null
fi
[ "$(id -u)" = 0 ] || exec "$@" -D "$PGDATA" -c listen_addresses='*'
exec setpriv --reuid=postgres --regid=postgres --init-groups "$@" -D "$PGDATA" -c listen_addresses='*'
