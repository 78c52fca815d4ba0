#!/bin/sh
# Files of llm.c (model_*.bin) in gpt-reshape: those that its script makes of a
# model (tests/golden/llmc), both ways, and files that were made to harm.
. "$(dirname "$0")/../lib/tap.sh"

golden=$top/tests/golden
into() { # from to option...
    from=$1 to=$2
    shift 2
    gpt-reshape --load-path "$from" --save-path "$to" "$@"
}

for type in fp32 bf16; do
    expect 0 "out as $type" into "$golden/hf" $type.bin --to llmc \
        --target-params-dtype $type --verify
    check "is the file of llm.c" cmp $type.bin "$golden/llmc/$type.bin"
done
expect 0 'in again' into "$golden/llmc/fp32.bin" hf --to hf --verify
expect 0 'straight' into "$golden/hf" direct --to hf
check 'is the same' cmp hf/model.safetensors direct/model.safetensors
expect 0 'into a run' into "$golden/llmc/bf16.bin" run --verify \
    --target-tensor-model-parallel-size 2
expect 0 'and out' into run again.bin --to llmc --verify
check 'to the same bytes' cmp again.bin "$golden/llmc/bf16.bin"
expect 0 'inspect' gpt-reshape inspect "$golden/llmc/bf16.bin"
out_has 'llm.c'
out_has 'qkvw.1      BF16  [48, 16]'
out_has 'vocab_size               67'
expect 0 'as JSON' gpt-reshape inspect "$golden/llmc/fp32.bin" --json
out_has '"name":"wte","dtype":"F32","shape":[128,16]'
expect 0 'a text of it' gpt-generate --load "$golden/llmc/fp32.bin" \
    --tokenizer-type NullTokenizer --vocab-size 66 --prompt '1 2 3' --greedy \
    --tokens 4 -q
cp out want
expect 0 'and of the directory' gpt-generate --load "$golden/hf" \
    --tokenizer-type NullTokenizer --vocab-size 66 --prompt '1 2 3' --greedy \
    --tokens 4 -q
check 'is the same' cmp out want
# ---- a run of two ranks ----
expect 0 'a run' into "$golden/llmc/model_00000003.bin" llmc_run \
    --make-vocab-size-divisible-by 67 --verify
err_has 'left out: state of random numbers'
run=llmc_run/iter_0000003
into "$golden/llmc/fp32.bin" floats --make-vocab-size-divisible-by 67 -q
check 'with its weights in fp32' cmp $run/model_tp00_pp00.safetensors \
    floats/iter_0000000/model_tp00_pp00.safetensors
tail -c 31680 $run/model_tp00_pp00.safetensors >weights
tail -c 31680 $run/optimizer_exp_avg_tp00_pp00.safetensors >moments
check 'first moments in the same order' cmp weights moments
tail -c 31680 $run/optimizer_exp_avg_sq_tp00_pp00.safetensors | tr -d '\000' \
    >zeros
check 'second moments' [ ! -s zeros ]
expect 0 'to other ranks' into $run llmc_two --verify \
    --target-tensor-model-parallel-size 2 \
    --make-vocab-size-divisible-by 67
cp "$golden/llmc/model_00000003.bin" "$golden/llmc/state_00000003_00000.bin" .
expect 4 'a rank that is missing' into model_00000003.bin x
err_has 'state_00000003_00001.bin'
head -c 3000 "$golden/llmc/state_00000003_00001.bin" \
    >state_00000003_00001.bin
expect 3 'a short one' into model_00000003.bin x
err_has 'is shorter than the file of rank 0'
cp "$golden/llmc/state_00000003_00000.bin" state_00000003_00001.bin
expect 3 'one of another rank' into model_00000003.bin x
err_has 'its name says another rank'
rm state_00000003_0000?.bin

expect 3 'no fp16' into "$golden/hf" x.bin --to llmc --target-params-dtype fp16
err_has "llm.c's files hold fp32 or bf16, and no F16"
expect 3 'no other model' into "$golden/gguf/plain.gguf" x.bin --to llmc
err_has "llm.c's files hold GPT-2 alone; this model differs in"
expect 2 'nor packed' into "$golden/hf" x.bin --to llmc \
    --target-params-dtype q8_0
expect 7 'nor over another' into "$golden/hf" fp32.bin --to llmc

# ---- files that were made to harm ----
if ! perl -e 1 2>/dev/null; then
    skip 'no perl to make files with'
    tap_done
fi
bad() { # name message word value
    perl -0777 -pe 'substr($_, 4 * '"$3"', 4) = pack("V", '"$4"')' \
        "$golden/llmc/fp32.bin" >"$1.bin"
    expect 3 "$1" timeout 60 gpt-reshape inspect "$1.bin"
    err_has "$2"
}
bad version 'version 4: only 3 (fp32) and 5 (bf16)' 1 4
bad type 'the sizes in its head make' 1 5
bad positions 'max_seq_len is 0, out of range' 2 0
bad words 'padded_vocab_size is 128, less than vocab_size 129' 3 129
bad layers 'the sizes in its head make' 4 65536
bad heads 'num_attention_heads' 5 3
bad channels 'channels is -1, out of range' 6 0xffffffff
bad wide 'the sizes in its head make' 6 16777216
bad rows 'the sizes in its head make' 7 127
head -c 30000 "$golden/llmc/fp32.bin" >cut.bin
expect 3 'a file that was cut' gpt-reshape inspect cut.bin
err_has 'the file has 28976'

tap_done
