#!/bin/sh
# A conversion that is interrupted goes on where it was: killed before each of
# its writes, syncs and renames in turn, with a full disk, and at moments of
# chance. The same command ends in the bytes of a run that nothing disturbed,
# keeps what is whole, takes nothing that is not, and leaves nothing behind.
. "$(dirname "$0")/../lib/tap.sh"
faulty=$BUILD/faults/gpt-reshape
[ -x "$faulty" ] && [ -x "$BUILD/gpt-train" ] || {
    skip "no $faulty, or no gpt-train"
    tap_done
    exit
}
tp=--target-tensor-model-parallel-size
pp=--target-pipeline-model-parallel-size
echo '1234567890,.-+/(' | awk '{ for (i = 0; i < 20; i++) t = t $0
    print "{\"text\": \"" t "\"}" }' >x.jsonl
gpt-preprocess --input x.jsonl --output-prefix x -q \
    --tokenizer-type ByteTokenizer
expect 0 'a run' gpt-train --data-path x_text_document --vocab-size 67 \
    --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 \
    --train-iters 2 --lr 1e-3 --split 100,0,0 --save run
# An adapter of rank 2 for a matrix of the first layer.
adapter() { # directory alpha
    mkdir -p "$1"
    printf '{"peft_type": "LORA", "r": 2, "lora_alpha": %s}' "$2" \
        >"$1/adapter_config.json"
    perl -e 'my $name = "base_model.model.transformer.h.0.mlp.c_fc.lora_%s";
        my $head = sprintf("{\"$name.weight\":{\"dtype\":\"F32\"," .
            "\"shape\":[2,32],\"data_offsets\":[0,256]},\"$name.weight\":{" .
            "\"dtype\":\"F32\",\"shape\":[128,2]," .
            "\"data_offsets\":[256,1280]}}", "A", "B");
        print pack("Q<", length $head), $head,
            pack("f<*", map { $_ % 7 - 3 } 1 .. 320)' \
        >"$1/adapter_model.safetensors"
}
adapter one 1
adapter other 2

same() { # all files of the output, and no others
    # a small file that was being written is swept by later runs
    diff -r -x '*.tmp.*' whole made && ! find . -name '*.part' -o -name '*.resume' | grep .
}
into() { # option...
    gpt-reshape --load-path run --save-path made/x "$@"
}
# The calls of a kind that an undisturbed run makes.
count() { # kind option...
    kind=$1
    shift
    rm -rf made && mkdir made
    GPT_FAULT=count "$faulty" --load-path run --save-path made/x "$@" \
        --threads 1 2>&1 | sed -n "s/^faults:.* $kind \([0-9]*\).*/\1/p"
}
each() { # fault option...: dies there, or fails; then the same again
    fault=$1
    shift
    calls=$(count "${fault%%:*}" "$@")
    [ "$calls" -gt 0 ] || return 1
    step=$((calls / 6 + 1))
    n=1
    kept=0
    while [ $n -le "$calls" ]; do
        rm -rf made && mkdir made
        GPT_FAULT="${fault%%:*}:$n:${fault#*:}" "$faulty" --load-path run \
            --save-path made/x "$@" --threads 1 >err 2>&1
        into "$@" >err 2>&1 || {
            echo "$fault $n: the same command fails"
            cat err
            find made
            return 1
        }
        grep -q 'were complete after an interruption' err && kept=$((kept + 1))
        same || {
            echo "after $fault $n"
            return 1
        }
        n=$((n + step))
    done
    echo "$calls calls, $kept runs went on"
    [ "$kept" -gt 0 ] || [ "${fault%%:*}" != write ]
}
while read -r name options; do
    rm -rf made whole && mkdir made
    # shellcheck disable=SC2086 # options are words
    expect 0 "$name" into $options
    mv made whole
    for fault in write:KILL write:ENOSPC fsync:KILL; do
        # shellcheck disable=SC2086 # options are words
        check "$name: $fault" each $fault $options
    done
done <<'END'
native --target-tensor-model-parallel-size 2 --target-params-dtype bf16
megatron --to megatron --target-pipeline-model-parallel-size 2
distributed --use-distributed-optimizer
hf --to hf --max-shard-size 20KB
gguf --to gguf
llmc --to llmc
merged --merge-adapter one --target-tensor-model-parallel-size 2
END

# ---- what is not whole ----
damage() { # what is there after a death in the middle, or another signal
    rm -rf made && mkdir made
    GPT_FAULT=write:40:${1:-KILL} "$faulty" --load-path run --save-path made/x $tp 2 \
        --threads 1 >err 2>&1
    list=made/x/.iter_0000002.resume
    half=made/x/.iter_0000002.part
    [ -s $list ] && [ -d $half ] || { find made; return 1; }
}
goes_on() {
    into $tp 2 >err 2>&1 && same || { cat err; return 1; }
}
rm -rf made whole && mkdir made
expect 0 'at two ranks' into $tp 2
mv made whole
check 'a death' damage
check 'it goes on' goes_on
check 'and says so' grep -q 'were complete after an interruption' err
check 'a ^C' damage INT
check 'stops it' grep -q 'error: stopped by SIGINT' err
check 'which says that nothing is lost' grep -q \
    'the same command resumes from there' err
check 'nor is it' goes_on
check 'or hardly anything' grep -q 'were complete after an interruption' err
damage
for file in $half/*; do
    size=$(wc -c <"$file")
    head -c "$size" /dev/zero >"$file"
done
check 'bytes that are not what was noted are written again' goes_on
check 'nothing was whole' sh -c '! grep -q interruption err'
damage
printf 'model_tp00_pp00.safetensors 00' >>$list
echo x >$half/other.safetensors
ln -s /etc/passwd $half/link
check 'a torn line, and files of nobody' goes_on
damage
: >$list
check 'no list' goes_on
damage
rm -r $half
check 'a list alone' goes_on
damage
touch run/iter_0000002/*.safetensors
check 'an input that was changed' goes_on
check 'is read anew' sh -c '! grep -q interruption err'
damage
expect 0 'another conversion to the same place' into $pp 2
check 'has its own files alone' sh -c \
    'ls made/x/iter_0000002 | grep -c tp00_pp01 | grep -qx 3 &&
     ! ls made/x/iter_0000002 | grep tp01'
rm -rf made && mkdir made
GPT_FAULT=write:40:KILL "$faulty" --load-path run --save-path made/x $tp 2 \
    --threads 1 --merge-adapter one >err 2>&1
check 'a death while an adapter is merged' test -s made/x/.iter_0000000.resume
into $tp 2 --merge-adapter other >err 2>&1
check 'another adapter is another input' sh -c \
    'grep -q "made/x: . files" err && ! grep -q interruption err'
expect 0 'which is merged, and not the first' gpt-reshape verify run made/x \
    --merge-adapter other
damage
cp $list lines
check 'a death after the name' goes_on
cp lines $list
check 'and another in what comes after it' sh -c \
    'GPT_FAULT=write:40:KILL "$@" >err 2>&1; [ -d made/x/.iter_0000002.part ]' \
    sh "$faulty" --load-path run --save-path made/x $tp 2 --threads 1
check 'it goes on, too' goes_on
damage
cp -r $half kept
expect 0 'a reader does not see it' gpt-reshape inspect run
expect 3 'as nothing is published' gpt-reshape inspect made/x
rm -rf kept

# ---- a comparison that is interrupted ----
check 'a ^C while two checkpoints are compared' sh -c \
    '! GPT_FAULT=read:5:INT "$0" verify run whole/x >err 2>&1 &&
     grep -q "stopped by SIGINT" err && ! grep -q "by how much" err' "$faulty"

# ---- what fp16 does not hold ----
# The first and the last element of the weights become the largest of fp32.
expect 0 'weights in fp32' gpt-reshape --load-path run --save-path huge --to hf
header=$(od -An -t u8 -N 8 huge/model.safetensors | tr -d ' ')
size=$(wc -c <huge/model.safetensors)
for at in $((8 + header)) $((size - 4)); do
    printf '\377\377\177\177' | dd of=huge/model.safetensors bs=1 seek="$at" \
        conv=notrunc 2>/dev/null
done
half() { # program
    "$1" --load-path huge --save-path made --to hf --target-params-dtype fp16 \
        --threads 1
}
rm -rf made
expect 0 'as fp16' half gpt-reshape
err_has 'infinite as fp16, which ends at 65504: 2 elements'
rm -rf made
check 'a death when the first is written' sh -c \
    'GPT_FAULT=write:30:KILL "$@" >err 2>&1; [ -s .made.resume ]' sh "$faulty" \
    --load-path huge --save-path made --to hf --target-params-dtype fp16 \
    --threads 1
expect 0 'it goes on' half gpt-reshape
err_has 'were complete after an interruption'
err_has 'infinite as fp16, which ends at 65504: 2 elements'

# ---- moments of chance, with threads ----
by_chance() {
    i=0
    while [ $i -lt "${GPT_KILLS:-8}" ]; do
        rm -rf made && mkdir made
        gpt-reshape --load-path run --save-path made/x $tp 2 >err 2>&1 &
        pid=$!
        sleep "0.0$(((i * 7 + 1) % 10))"
        kill -9 $pid 2>err
        wait $pid 2>err
        # it may have ended before
        into $tp 2 >err 2>&1 || grep -q 'holds checkpoints already' err || {
            cat err
            return 1
        }
        same || { ls -lA made made/x; return 1; }
        i=$((i + 1))
    done
}
check 'killed at any moment' by_chance
tap_done
