#!/bin/sh
# Size budgets and banned calls: functions of at most 80 lines, files of at most
# 800, lines of at most 80 columns (.cu: 100), no call that is unbounded or that
# exits from a library. tests/lib/budget.except has the exceptions, one on each
# line with its reason; that list may only become shorter.
set -u
cd "$(dirname "$0")/../.." || exit 1
bad=0
complain() {
    file=${1%%:*}
    if grep -qs "^${file}[: ]" tests/lib/budget.except; then return; fi
    echo "budget: $1"
    bad=1
}

files=$(git ls-files '*.c' '*.h' '*.cu' '*.cuh')
for f in $files; do
    case $f in
    *_table.c) continue ;; # generated
    esac
    n=$(wc -l <"$f")
    [ "$n" -le 800 ] || complain "$f: $n lines, limit 800"
    max=80
    case $f in
    *.cu | *.cuh) max=100 ;;
    esac
    awk -v max="$max" '
        { wide = $0; gsub(/[\200-\277]/, "", wide) }
        length(wide) > max { print FILENAME ":" FNR ": " length(wide) \
            " columns, limit " max }
        /\t/ { print FILENAME ":" FNR ": a tab" }
        /[ \t]$/ { print FILENAME ":" FNR ": a blank at the end" }
        /^\{/ { start = FNR }
        /^\}/ { if (start && FNR - start - 1 > 80)
                    print FILENAME ":" start ": function of " \
                        FNR - start - 1 " lines, limit 80"
                start = 0 }' "$f" >/tmp/budget.$$
    while IFS= read -r line; do complain "$line"; done </tmp/budget.$$
done
rm -f /tmp/budget.$$

ban='\b(strcpy|strcat|sprintf|vsprintf|strtok|gets|atoi|atol|atof|system|mktemp)'
for f in $(git ls-files 'cmd/*.c' 'common/*.c' 'common/*.h' 'kernels/*.c'); do
    # Comments and strings may contain the names.
    for line in $(sed 's|//.*||; s|"[^"]*"||g; s|^ \*.*||; s|/\*.*||' "$f" |
        grep -nE "${ban}[ ]?\(" | cut -d: -f1); do
        complain "$f:$line: banned call"
    done
    case $f in
    common/base/signals.c | common/base/fault.c) continue ;;
    esac
    for line in $(sed 's|"[^"]*"||g; s|^ \*.*||; s|/\*.*||' "$f" |
        grep -nE '(^|[^_a-z>.])(exit|_exit|abort)[ ]?\(' | cut -d: -f1); do
        complain "$f:$line: exits"
    done
done
[ $bad = 0 ] && echo "budget: all within limits"
exit $bad
