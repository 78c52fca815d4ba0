#!/bin/sh
# The commands of gpt-reshape: plan, convert, verify and diff, over checkpoints
# of several formats. inspect and globals are in t30 and t31.
. "$(dirname "$0")/../lib/tap.sh"

golden=$top/tests/golden

# ---- convert and plan ----
expect 0 'plan' gpt-reshape plan "$golden/hf" native
out_has 'read   '
out_has 'write  model_tp00_pp00.safetensors: 28 tensors'
out_has 'of memory'
check 'writes nothing' [ ! -e native ]
expect 0 'as JSON' gpt-reshape plan "$golden/hf" x.gguf --json \
    --target-params-dtype q8_0
out_has '"format":"gguf"'
out_has '"memory":'
check 'is one line' [ "$(wc -l <out)" = 1 ]
expect 0 'plan by options' gpt-reshape plan --load-path "$golden/hf" \
    --save-path native
expect 0 'convert' gpt-reshape convert "$golden/hf" native --verify
expect 0 'without the word' gpt-reshape --load-path "$golden/hf" \
    --save-path same
check 'is the same' diff -r native same
expect 0 'with options' gpt-reshape convert native half.gguf \
    --target-params-dtype bf16 --verify
err_has 'half.gguf: equals the input after rounding to bf16'
expect 2 'paths twice' gpt-reshape convert a b --load-path c
err_has 'convert has its paths twice'
expect 2 'a misspelt command' gpt-reshape convrt native x
err_has "did you mean 'convert'?"
expect 2 'a path in its place' gpt-reshape native x
err_has 'to convert: --load-path native --save-path TO'
expect 2 'neither' gpt-reshape model x
err_has 'gpt-reshape convert FROM TO'
expect 2 'one path' gpt-reshape convert native
err_has 'convert needs two paths'
expect 2 'no path' gpt-reshape convert
err_has '--load-path is needed'
expect 2 'no JSON of a conversion' gpt-reshape convert native x --json
err_has '--json has no effect on convert'
expect 2 'nor without the word' gpt-reshape --load-path native --save-path x \
    --json

# ---- space ----
# a model of 1.3 TB, all of it a hole; the plan reads its head
if perl -e 'print pack("V*", 20240326, 5, 64, 67, 200, 64, 16384, 128),
        "\\0" x 992' >huge.bin &&
    truncate -s $(((1024) + 2 * (16384 * (128 + 64 + 2) +
        200 * (12 * 16384 * 16384 + 13 * 16384)))) huge.bin 2>/dev/null &&
    [ "$(df -Pk . | awk 'NR == 2 { print $4 }')" -lt 1000000000 ]; then
    expect 0 'a plan of what does not fit' gpt-reshape plan huge.bin huge
    out_has '1.2 TiB to be written'
    expect 4 'is not begun' timeout 60 gpt-reshape convert huge.bin huge
    err_has "'huge': the output takes 1.2 TiB, and "
    err_has 'make room, or name a place on another file system'
    check 'nothing was written' [ ! -e huge/iter_0000000 ]
    rm huge.bin
else
    skip 'no file of 1.3 TB, or room for it'
fi

# ---- verify ----
expect 0 'the same in another format' gpt-reshape verify "$golden/hf" native
check 'says how' grep -q \
    "^native equals $golden/hf, bit for bit: 28 tensors, [0-9.]* k elements" out
expect 0 'and in a file' gpt-reshape verify "$golden/llmc/fp32.bin" native
expect 0 'in other ranks' gpt-reshape convert native ranks \
    --target-tensor-model-parallel-size 2 \
    --target-pipeline-model-parallel-size 2
expect 0 'is the same' gpt-reshape verify native ranks
expect 0 'rounded' gpt-reshape convert native bf16 --target-params-dtype bf16
expect 1 'is not the same' gpt-reshape verify native bf16
err_has 'is of type F32, and of BF16'
err_has '--target-params-dtype TYPE rounds the first before'
expect 0 'but after rounding' gpt-reshape verify native bf16 \
    --target-params-dtype bf16
out_has 'bf16 equals native, after rounding to bf16'
expect 0 'packed' gpt-reshape convert "$golden/gguf/plain.gguf" q.gguf \
    --target-params-dtype q8_0
expect 0 'says so' gpt-reshape verify "$golden/gguf/plain.gguf" q.gguf
out_has 'after packing to q8_0'
expect 1 'other models' gpt-reshape verify native q.gguf
err_has 'are models that differ in num_layers'
expect 2 'one path' gpt-reshape verify native
err_has 'gpt-reshape verify A B'
expect 4 'nothing there' gpt-reshape verify native nowhere
expect 2 'no layout of a comparison' gpt-reshape verify native ranks \
    --target-tensor-model-parallel-size 2
err_has '--target-tensor-model-parallel-size has no effect on verify'
expect 2 'nor another type of differences' gpt-reshape diff native ranks \
    --target-params-dtype bf16
err_has '--target-params-dtype has no effect on diff'
expect 2 'nor a place to save to' gpt-reshape inspect native --save-path x
err_has '--save-path has no effect on inspect'

# ---- diff ----
expect 0 'no difference' gpt-reshape diff native ranks
out_has '28 of 28 tensors are equal'
expect 0 'by rounding' gpt-reshape diff native bf16
out_has 'decoder.layers.0.mlp.linear_fc1.weight'
expect 0 'as JSON' gpt-reshape diff native bf16 --json
out_has '"name":"embedding.word_embeddings.weight"'
if perl -e 1 2>/dev/null; then
    # element 3 of the word table, 0.25 more
    perl -0777 -pe 'my $v = unpack("f<", substr($_, 1036, 4));
        substr($_, 1036, 4) = pack("f<", $v + 0.25)' \
        "$golden/llmc/fp32.bin" >changed.bin
    expect 1 'one number' gpt-reshape verify native changed.bin
    err_has "tensor 'embedding.word_embeddings.weight': rows 0 to 66 differ"
    expect 0 'is found' gpt-reshape diff native changed.bin
    out_has '27 of 28 tensors are equal'
    check 'with its size and place' grep -qE \
        '^ +0.25 .* 0,3: .* embedding.word_embeddings.weight$' out
    # a dummy row of the file
    perl -0777 -pe 'substr($_, 1024 + 4 * 16 * 100, 4) = pack("f<", 9)' \
        "$golden/llmc/fp32.bin" >padding.bin
    expect 0 'padding is not compared' gpt-reshape verify native padding.bin
    # the last element of a matrix with as many rows as the padded vocabulary
    perl -0777 -pe 'my ($t, $v, $l, $h, $c, $rows) = unpack("x8V6", $_);
        my $at = ($rows + $t) * $c + $l * (4 * $c * $c + 8 * $c);
        substr($_, 1024 + 4 * ($at + 4 * $c * $c - 1), 4) = pack("f<", 9)' \
        "$golden/llmc/fp32.bin" >last.bin
    for file in "$golden/llmc/fp32" last; do
        expect 0 'padded to 64 rows' gpt-reshape convert "$file.bin" \
            "${file##*/}" --true-vocab-size 50 \
            --make-vocab-size-divisible-by 64
    done
    expect 1 'its last row is compared' gpt-reshape verify fp32 last
    err_has 'layers.0.mlp.linear_fc1.weight'"': rows 0 to 63 differ"
    perl -0777 -pe 'substr($_, 1036, 4) = pack("V", 0x7fc00000)' \
        "$golden/llmc/fp32.bin" >nan.bin
    expect 0 'a NaN' gpt-reshape diff native nan.bin
    out_has 'inf'
    expect 0 'as JSON' gpt-reshape diff native nan.bin --json
    out_has '"largest":null'
fi

tap_done
