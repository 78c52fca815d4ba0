#!/bin/sh
# Inputs are never changed: an output that is one of them is refused by every
# program, with --force too, under the same name, a symbolic or a hard link.
. "$(dirname "$0")/../lib/tap.sh"

i=0
while [ $i -lt 20 ]; do
    echo "{\"text\": \"line $i of some text that words are made of\"}"
    i=$((i + 1))
done >corpus.jsonl
tok='--tokenizer-type ByteTokenizer'

# The command must end with 2 and name the input, which stays as it is.
refused() { # input command...
    input=$1
    shift
    cp -p "$input" kept
    expect 2 "refused: $*" "$@"
    err_has 'is the input'
    err_has 'inputs are never modified'
    err_has "$(basename "$input")"
    check 'the input is as it was' cmp kept "$input"
    check 'nothing else is left' sh -c '! ls -A | grep "tmp\.\|publish"'
}

for link in same symbolic hard; do
    for out in o_text_document.bin o_text_document.idx v-vocab.json \
        v-merges.txt bad.jsonl; do
        rm -f "$out" in.jsonl
        case $link in
        same) cp corpus.jsonl "$out" && input=$out ;;
        symbolic) cp corpus.jsonl in.jsonl && ln -s in.jsonl "$out" &&
            input=in.jsonl ;;
        hard) cp corpus.jsonl in.jsonl && ln in.jsonl "$out" &&
            input=in.jsonl ;;
        esac
        case $out in
        o_*) refused "$input" gpt-preprocess --input "$input" $tok \
            --output-prefix ./o --force ;;
        v-*) refused "$input" gpt-vocab --input "$input" --force \
            --output-prefix "$PWD/v" --vocab-size 260 ;;
        bad*) refused "$input" gpt-preprocess --input "$input" $tok \
            --output-prefix x --on-error quarantine=bad.jsonl --force ;;
        esac
        rm -f "$out" in.jsonl
    done
done

expect 0 'a vocabulary' gpt-vocab --input corpus.jsonl --output-prefix v \
    --vocab-size 270
cp v-vocab.json o_text_document.json
refused o_text_document.json gpt-preprocess --input corpus.jsonl --force \
    --vocab-file o_text_document.json --merge-file v-merges.txt \
    --output-prefix o
ln -f v-merges.txt w-merges.txt
refused v-merges.txt gpt-preprocess --input corpus.jsonl --force \
    --vocab-file v-vocab.json --merge-file v-merges.txt \
    --output-prefix y --on-error quarantine=w-merges.txt
printf 'force = true\ninput = corpus.jsonl\ntokenizer-type = ByteTokenizer\n' \
    >z_text_document.idx
refused z_text_document.idx gpt-preprocess --config z_text_document.idx \
    --output-prefix z
mkdir dir && ln corpus.jsonl dir/c.jsonl && ln -s dir/c.jsonl q_text_document.bin
refused dir/c.jsonl gpt-preprocess --input dir $tok --output-prefix q --force
rm -f q_text_document.bin

for i in a b; do
    expect 0 "set $i" gpt-preprocess --input corpus.jsonl $tok \
        --output-prefix $i
done
a=a_text_document b=b_text_document
refused $b.json gpt-dataset merge $a $b --output-prefix $b --force
refused $b.idx gpt-dataset slice $b --documents 0:2 --output-prefix $b --force
ln $a.json m.json
refused $a.json gpt-dataset merge $a $b --output-prefix m --force
rm m.json && ln -s $a.idx m.bin
refused $a.idx gpt-dataset convert $a --to llmc --output-prefix m --force
rm m.bin && ln $a.bin m.ds
refused $a.bin gpt-dataset convert $a --to ds --output-prefix m --force
mkdir parts && for f in $a.*; do ln "$f" "parts/$f"; done
refused $a.json gpt-dataset merge --input parts --output-prefix $a --force

# A directory is replaced as a whole.
train="gpt-train --data-path $a $tok --num-layers 1 --hidden-size 16
    --num-attention-heads 2 --seq-length 16 --micro-batch-size 1 --lr 1e-3
    --split 1,0,0 --eval-iters 0 --train-iters 1 --threads 1 -q"
expect 0 'a checkpoint' $train --save run/ckpt
expect 7 'gpt-reshape: not around its input' gpt-reshape --load-path run/ckpt \
    --to hf --save-path run --force
err_has "run holds 'ckpt'"
check 'the checkpoint is there' test -e run/ckpt/iter_0000001/manifest.json
tap_done
