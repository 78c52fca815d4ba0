#!/bin/sh
# Keeps what tests print, for a summary at the end: prove itself names the
# numbers of the failed tests alone.
#
#   logged.sh run LOGS TEST     runs TEST; its output also goes into LOGS
#   logged.sh failures LOGS     prints each failed check and why it failed
set -u
logs=$2
case $1 in
run)
    log=$logs/$(basename "$3").log
    {
        case $3 in
        *.sh) sh "$3" ;;
        *) "$3" ;;
        esac
        echo $? >"$log.status"
    } | tee "$log"
    exit "$(cat "$log.status")"
    ;;
failures)
    for log in "$logs"/*.log; do
        grep -q '^not ok' "$log" || [ "$(cat "$log.status")" != 0 ] || continue
        echo "$(basename "$log" .log):"
        awk '/^(not )?ok|^1\.\./ { failed = /^not/ } failed' "$log" | sed 's/^/    /'
        awk -v status="$(cat "$log.status")" '/^1\.\./ { ended = 1 }
            END { if (!ended) print "    ended early, status " status ": " $0 }
            ' "$log"
    done
    ;;
esac
