#!/bin/sh
# What the entry point of the official image does with POSTGRES_USER, POSTGRES_DB and POSTGRES_PASSWORD_FILE.
set -eu
[ "$1" = postgres ] || exec "$@"
install -d -o postgres -g postgres -m 0700 "$PGDATA"
install -d -o postgres -g postgres /run/postgresql
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    install -o postgres -m 0400 "$POSTGRES_PASSWORD_FILE" /tmp/password
    su postgres -c "PATH=$PATH initdb --pgdata=$PGDATA --username=$POSTGRES_USER --pwfile=/tmp/password \
        --auth-host=scram-sha-256 --auth-local=trust --encoding=UTF8 --locale=C.UTF-8 --no-sync >/dev/null"
    su postgres -c "PATH=$PATH; pg_ctl -D $PGDATA -o '-c listen_addresses=' -w start >/dev/null; \
        createdb --username=$POSTGRES_USER $POSTGRES_DB; pg_ctl -D $PGDATA -w stop >/dev/null"
fi
exec setpriv --reuid=postgres --regid=postgres --init-groups "$@" -D "$PGDATA" -c listen_addresses='*'
