#!/bin/sh
# gpt-generate --interactive answers each line before it reads the next, and
# --stats-file has the figures of a run.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/quick.sh"

make_quick_model

talk() {
    gpt-generate --load ckpt --interactive --greedy --threads 1 "$@"
}
printf 'quick\n\nqui\r\nq' >lines
printf ' brown\nquick brown\nck brown\nuick brown\n' >want
talk <lines >out 2>err
got=$?
check 'lines are continued' cmp want out
check 'and it ends well' test $got = 0
err_has 'tokens/s'
talk --echo <lines >out 2>err
out_has 'quick brown'
printf 'quick\na line that is longer than all of the positions\nqui\n' >lines
talk <lines >out 2>err
printf ' brown\n\nck brown\n' >want
check 'a line that is too long has no text' cmp want out
err_has '47 tokens, but there are only 32'

printf 'qu\377ick\n' >lines
talk <lines >out 2>err
err_has 'the line: byte 3, 0xff, is no UTF-8'

# A text is there before the next line is.
mkfifo to from
talk <to >from 2>err &
pid=$!
exec 3>to 4<from
echo quick >&3
read -r first <&4
echo qui >&3
read -r second <&4
exec 3>&- 4<&-
wait $pid
check 'an answer to each line in turn' test "$first.$second" = 'brown.ck brown'

for bad in '--prompt x' --jsonl '--num-samples 2' '--num-beams 2' --score; do
    # shellcheck disable=SC2086 # words
    expect 2 "$bad" talk $bad
done

# ---- statistics ----
expect 0 'statistics' gpt-generate --load ckpt --greedy -p quick '' \
    --stats-file stats
check 'tokens of prompts and of steps' grep -q \
    '^{"prompt_tokens":6,.*"step_tokens":17,"steps":11,.*}$' stats
expect 7 'a file that is there' gpt-generate --load ckpt -p a --stats-file stats
err_has 'force'
check 'nothing is written then' test ! -s out
expect 0 'with --force' gpt-generate --load ckpt -p a --stats-file stats --force
expect 4 'one that cannot be written' gpt-generate --load ckpt -p a \
    --stats-file none/stats
check 'is reported before the texts' test ! -s out
expect 4 'work that fails' gpt-generate --load none --stats-file failed -p a
check 'leaves no statistics' test ! -e failed
expect 0 'scores' sh -c \
    'gpt-generate --load ckpt --score --stats-file scored </dev/null'
err_has '--stats-file (no text is made)'
tap_done
