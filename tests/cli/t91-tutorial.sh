#!/bin/sh
# Runs the commands of README's tutorial, with fewer steps, on a small corpus.
# gpt.7 must have the same commands.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/commands.sh"

commands "$top/README" >readme
commands "$top/man/gpt.7" >page
check 'README has six commands' test "$(wc -l <readme)" = 6
check 'gpt.7 has the same ones' diff readme page

i=0
while [ $i -lt 400 ]; do
    echo "{\"text\": \"Once upon a time there were $i dwarfs, and $((i * 7)) \
of them lived in house number $((i % 13)) behind the hills.\"}"
    i=$((i + 1))
done >corpus.jsonl

sed 's/--train-iters 1000/--train-iters 4/; s/-interval 200/-interval 2/
     s/--vocab-size 4096/--vocab-size 320/; s/--tokens 100/--tokens 8/
     s/--save ckpt/--eval-iters 2 &/' \
    readme >short
while IFS= read -r line; do
    expect 0 "$ ${line%% *}" sh -c "$line"
done <short
check 'a checkpoint of step 4' test -d ckpt/iter_0000004
check 'weights for Hugging Face' test -s hf/model.safetensors
check 'and their configuration' test -s hf/config.json
tap_done
