#!/bin/sh
# What the reloader of the official image does: SIGHUP to the server when one of its files has changed.
set -eu
files=
for word in "$@"; do
    case $word in
        -pid=*) pid=${word#-pid=} ;;
        -config=*) files="$files ${word#-config=}" ;;
    esac
done
seen=$(cat $files | sha256sum)
while sleep 1; do
    now=$(cat $files | sha256sum)
    [ "$now" = "$seen" ] || { kill -HUP "$(cat "$pid")" && seen=$now; }
done
