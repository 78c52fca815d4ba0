#!/bin/sh
# GGUF files in gpt-reshape, gpt-train and gpt-generate: files of gguf-py
# (tests/golden/gguf), round trips, messages, and files that were made to harm.
# llama.cpp itself is compared with in tests/parity/gguf.sh.
. "$(dirname "$0")/../lib/tap.sh"

golden=$top/tests/golden
into() { # from to option...
    from=$1 to=$2
    shift 2
    gpt-reshape --load-path "$from" --save-path "$to" "$@"
}

# ---- what gguf-py wrote ----
expect 0 'inspect a packed file' gpt-reshape inspect "$golden/gguf/packed.gguf"
out_has 'gguf'
out_has 'q8_0  [259, 32]'
out_has 'normalization            "RMSNorm"'
expect 0 'as JSON' gpt-reshape inspect "$golden/gguf/packed.gguf" --json
out_has '"name":"blk.0.ffn_up.weight","dtype":"q8_0","shape":[32,32],"bytes":1088'
expect 0 'plain numbers' into "$golden/gguf/plain.gguf" plain --verify
expect 0 'packed ones' into "$golden/gguf/packed.gguf" packed --verify
check 'are the numbers that gguf-py unpacks' \
    cmp plain/iter_0000000/model_tp00_pp00.safetensors \
    packed/iter_0000000/model_tp00_pp00.safetensors
check 'the vocabulary goes along' [ -f packed/iter_0000000/tokenizer.json ]
expect 0 'into two ranks and back to a file' into "$golden/gguf/plain.gguf" two \
    --target-tensor-model-parallel-size 2
expect 0 'which is Llama' into two two.gguf --verify
err_has 'equals the input, bit for bit'
expect 0 'packed again' into two again.gguf --target-params-dtype q8_0 --verify
err_has 'after rounding to q8_0'
data() { # file: its last bytes, which are tensors
    tail -c 15000 "$1"
}
data again.gguf >got
data "$golden/gguf/packed.gguf" >want
check 'to the bytes of gguf-py' cmp got want
expect 0 'as Hugging Face' into two.gguf hf --to hf --verify
check 'it is Llama' grep -q '"model_type":.*"llama"' hf/config.json
check 'with its tokens' [ -f hf/tokenizer.json ]
expect 0 'a text of it' gpt-generate --load two.gguf --prompt 'the' --greedy \
    --tokens 8 -q
cp out want
expect 0 'and of the native one' gpt-generate --load two --prompt 'the' \
    --greedy --tokens 8 -q
check 'is the same' cmp out want
# queries, keys and values of Phi 2, as older files have them, and newer ones
expect 0 'three tensors' gpt-reshape verify "$golden/gguf/apart.gguf" \
    "$golden/gguf/together.gguf"
# layers with a window, by keys
expect 0 'a window of all layers' into "$golden/gguf/window.gguf" window --to hf
check 'is that of Phi-3' grep -q '"sliding_window":.*5' window/config.json
expect 3 'and not written' into window window.gguf
err_has 'window_size'
expect 0 'a list of layers' into "$golden/gguf/layers.gguf" layers --to hf
check 'with their base' sh -c 'tr -d " \t\n" <layers/config.json |
    grep -q "\"sliding_attention\":{[^}]*\"rope_theta\":100[,.}]"'
check 'of which the second has none' sh -c 'tr -d " \t\n" <layers/config.json |
    grep -q "sliding_attention\",\"full_attention\",\"sliding_attention"'
perl -0777 -pe 's/(window_pattern.{4}.{4})\x03/$1\x02/s' \
    "$golden/gguf/layers.gguf" >short.gguf
expect 3 'a list that is too short' gpt-reshape inspect short.gguf
# matrices of few bits, each of another type
few=$golden/gguf/few.gguf
expect 0 'inspect types of few bits' gpt-reshape inspect "$few"
for type in iq4_xs q2_K q3_K tq2_0 tq1_0 mxfp4 iq4_nl; do
    out_has " $type "
done
out_has 'q3_K    [8, 256]'
expect 0 'their numbers' into "$few" few.gguf --verify \
    --target-params-dtype fp32
err_has 'equals the input after rounding to fp32'
tail -c 158720 few.gguf | sha256sum | cut -d ' ' -f 1 >got
check 'are those of gguf-py' cmp got "$golden/gguf/few.sha256"
expect 0 'cut for ranks' into "$few" few2 --verify \
    --target-params-dtype fp32 --target-tensor-model-parallel-size 2
expect 0 'and put together' into few2 few2.gguf
tail -c 158720 few2.gguf | sha256sum | cut -d ' ' -f 1 >got
check 'they are the same' cmp got "$golden/gguf/few.sha256"
expect 0 'or compared' gpt-reshape diff few2 few.gguf
expect 0 'and as Hugging Face' into "$few" few-hf --to hf --verify
expect 2 'they are not written' into "$few" x.gguf --target-params-dtype q2_K
expect 0 'ids of it' gpt-generate --load "$few" --prompt '1 2 3' --greedy \
    --tokens 4 --tokenizer-type NullTokenizer --vocab-size 7 -q
cp out want
expect 0 'and of what was written' gpt-generate --load few2 --prompt '1 2 3' \
    --greedy --tokens 4 --tokenizer-type NullTokenizer --vocab-size 7 -q
check 'are the same' cmp out want
# special tokens before the others, as libraries that train tokenizers put them
cp -r hf first
sed -i 's/"added_tokens":\[/&{"id":0,"content":"!","special":true},/
    s/},\],"normalizer"/}],"normalizer"/' first/tokenizer.json
echo '{{ bos_token }}{{ messages[0].content }}' >first/chat_template.jinja
sed -i 's/"eos_token_id":.*/"eos_token_id": 2,/' first/config.json
echo '{"eos_token_id": [2, 5]}' >first/generation_config.json
expect 0 'a special token before the others' into first first.gguf
expect 0 'is read again' gpt-generate --load first.gguf --prompt 'the' \
    --greedy --tokens 8 -q
expect 0 'and goes back' into first.gguf first-hf --to hf
check 'with its id' grep -q '"added_tokens":\[{"id":0,"content":"!"' \
    first-hf/tokenizer.json
check 'in the vocabulary, too' grep -q '"vocab":{"!":0,' \
    first-hf/tokenizer.json
check 'a decoder as the library reads it' grep -q \
    '"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}' \
    first-hf/tokenizer.json
tr -d ' \t\n' <first-hf/generation_config.json >ends
check 'both ends of a text' grep -F '"eos_token_id":[2,5]' ends
check 'and the template of chats' grep -qF \
    '"chat_template":"{{ bos_token }}{{ messages[0].content }}' \
    first-hf/tokenizer_config.json
expect 0 'from file to file' into first.gguf first-again.gguf
check 'it stays' grep -qF 'messages[0].content' first-again.gguf
cp -r first both
rm both/chat_template.jinja
both='"chat_template":[{"name":"default","template":"a"},{"name":"tool_use","template":"b"}]'
echo "{$both}" >both/tokenizer_config.json
expect 0 'one for tools beside it' into both both.gguf
expect 0 'goes back, too' into both.gguf both-hf --to hf
check 'as both were' grep -qF "$both" both-hf/tokenizer_config.json
cp -r first long
{
    printf '{#'
    head -c 1048577 /dev/zero | tr '\0' x
    printf '#}'
    cat first/chat_template.jinja
} >long/chat_template.jinja
expect 0 'a template of more than a mebibyte' into long long.gguf
expect 0 'goes back' into long.gguf long-hf --to hf
check 'whole' test "$(wc -c <long-hf/tokenizer_config.json)" -gt 1048620
# letters of Latin, which could be those of bytes
cp -r hf latin
sed -i 's/"added_tokens":\[/&{"id":257,"content":"d\xc3\xa9j\xc3\xa0"},/
    s/"the":257/"d\xc3\xa9j\xc3\xa0":257/; s/,"th e"//' latin/tokenizer.json
expect 0 'an added token of such letters' into latin latin.gguf
expect 0 'goes back' into latin.gguf latin-hf --to hf
printf '{"text":"a d\303\251j\303\240"}\n' >latin.jsonl
for from in latin latin.gguf latin-hf; do
    expect 0 "$from" gpt-preprocess --input latin.jsonl --output-prefix latin \
        --tokenizer-model $from --tokenizer-type HuggingFaceTokenizer --force
    expect 0 'has its id' gpt-dataset cat latin_text_document
    out_has ' 257'
done
# one that is the letter of a byte, which other texts have, too
cp -r hf letter
byte=$(sed 's/.*"\xc2\xa3":\([0-9]*\).*/\1/' letter/tokenizer.json)
sed -i 's/"added_tokens":\[/&{"id":'"$byte"',"content":"\xc2\xa3"},/' \
    letter/tokenizer.json
expect 0 'an added letter of a byte' into letter letter.gguf
expect 0 'goes back' into letter.gguf letter-hf --to hf
printf '{"text":"\302\243\303\243"}\n' >letter.jsonl
for from in letter letter.gguf letter-hf; do
    expect 0 "$from" gpt-preprocess --input letter.jsonl --force \
        --output-prefix letter --tokenizer-model $from \
        --tokenizer-type HuggingFaceTokenizer
    expect 0 'has the id of both' gpt-dataset cat letter_text_document
    check 'the byte' grep -Eqx "$byte [0-9]+ $byte" out
    expect 0 'and the text' gpt-dataset cat letter_text_document \
        --tokenizer-model $from --tokenizer-type HuggingFaceTokenizer
    out_has "$(printf '\303\243')"
done
LC_ALL=C sed 's/tokenizer.ggml.eos_token_id/tokenizer.ggml.eot_token_id/' \
    "$golden/gguf/plain.gguf" >turn.gguf
expect 0 'the end of a turn alone' into turn.gguf turn --to hf
tr -d ' \t\n' <turn/generation_config.json >ends
check 'ends a text' grep -F '"eos_token_id":258' ends
LC_ALL=C sed 's/messages.0..content/messages\xff0\xff.content/' first.gguf \
    >broken.gguf
expect 3 'a template that is no UTF-8' into broken.gguf broken --to hf
err_has 'is no UTF-8'
cp -r "$golden/hf" ends-hf
echo '{"bos_token_id": 66, "eos_token_id": [66, 5, 9, 11]}' \
    >ends-hf/generation_config.json
expect 0 'a model with four ends of texts' into ends-hf ends.gguf
err_has 'token 11 ends a text of this model, and GGUF files have no key for it'
expect 0 'three come back' into ends.gguf ends-back --to hf
tr -d ' \t\n' <ends-back/generation_config.json >ends
check 'in their order' grep -F '"eos_token_id":[66,5,9]' ends
expect 0 'no tokens of one' into "$golden/hf" bare.gguf
err_has 'holds no vocabulary, and bare.gguf will hold none'
expect 0 'GPT-2 out and back' into bare.gguf back --verify
expect 0 'straight' into "$golden/hf" direct
check 'to the same weights' cmp back/iter_0000000/model_tp00_pp00.safetensors \
    direct/iter_0000000/model_tp00_pp00.safetensors
expect 0 'half precision' into direct half.gguf --target-params-dtype bf16 \
    --verify
expect 0 'inspect it' gpt-reshape inspect half.gguf
check 'vectors stay F32' grep -q 'blk.0.attn_norm.bias  *F32' out
check 'matrices are BF16' grep -q 'blk.0.attn_qkv.weight  *BF16' out

if [ -x "$BUILD/gpt-train" ]; then
    echo '{"text": "the thing that the theme is about"}' >x.jsonl
    expect 0 'a data set by its tokens' gpt-preprocess --input x.jsonl \
        --output-prefix x --tokenizer-model two.gguf -q --append-eod
    expect 0 'training begins with it' gpt-train --load two.gguf --finetune \
        --data-path x_text_document --tokenizer-model two.gguf --save run \
        --num-layers 1 --hidden-size 32 --num-attention-heads 4 \
        --num-query-groups 2 --ffn-hidden-size 32 --seq-length 4 \
        --max-position-embeddings 64 --position-embedding-type rope \
        --normalization RMSNorm --swiglu --disable-bias-linear \
        --train-iters 1 --lr 1e-3 --split 100,0,0
    cat err >train.err
    check 'the checkpoint has the vocabulary, and not the weights again' \
        [ "$(wc -c <run/iter_0000001/tokenizer.json)" -lt 20000 ]
fi

# ---- places and options ----
expect 7 'not over another' into two two.gguf
expect 0 'but by force' into two two.gguf --force
echo text >text.gguf
expect 7 'nor over another kind of file' into two text.gguf --force
err_has "'text.gguf' is there, and is no file of format gguf"
mkdir d.gguf
expect 7 'nor over a directory' into two d.gguf
err_has "name a file in it: 'd.gguf/model.gguf'"
expect 4 'nor in no directory' into two none/x.gguf
err_has "mkdir -p 'none'"
expect 2 'no directory that is called as a file is' into two named.safetensors
err_has "'named.safetensors' is a name for a file; a checkpoint of format native"
check 'is made' [ ! -e named.safetensors ]
expect 2 'nor for Hugging Face' into two pytorch_model.bin --to hf
expect 2 'packing is of these files' into two x --target-params-dtype q4_0
err_has 'has no effect on format native'
expect 2 'no layout' into two x.gguf --target-tensor-model-parallel-size 2
expect 2 'no shards' into two x.gguf --max-shard-size 1MB
expect 0 'by name' into two named.bin --to gguf
check 'is the same file but for the name' [ "$(wc -c <named.bin)" -gt 60000 ]
cp two.gguf in.gguf
expect 2 'not over its input' into in.gguf in.gguf --force
err_has 'is the input'
check 'which stays' cmp in.gguf two.gguf
expect 0 'a dry run' into two dry.gguf --dry-run --target-params-dtype q8_0
check 'writes nothing' [ ! -e dry.gguf ]
if [ -x "$BUILD/gpt-train" ]; then
    expect 0 'a model of no architecture' gpt-train --num-layers 1 \
        --data-path x_text_document --vocab-size 300 --hidden-size 16 \
        --num-attention-heads 2 --seq-length 4 --train-iters 1 --lr 1e-3 \
        --split 100,0,0 --position-embedding-type alibi --save alibi
    expect 3 'is refused' into alibi alibi.gguf
    err_has 'no architecture of GGUF files is this model'
    err_has 'differ: gpt2 in position_embedding; '
    # what llama.cpp does not load of an architecture
    small() { # directory option...
        dir=$1
        shift
        expect 0 "a model: $dir" gpt-train --num-layers 1 --hidden-size 16 \
            --data-path x_text_document --vocab-size 300 --seq-length 4 \
            --num-attention-heads 2 --train-iters 1 --lr 1e-3 --split 100,0,0 \
            --save "$dir" "$@"
    }
    rms='--position-embedding-type rope --normalization RMSNorm
        --disable-bias-linear'
    untied=--untie-embeddings-and-output-weights
    small heads --kv-channels 12
    expect 3 'heads of another width' into heads heads.gguf
    err_has 'differ: gpt2 in head_size; '
    # shellcheck disable=SC2086 # options are words
    small apart $rms --geglu --apply-layernorm-1p --scale-embedding $untied
    expect 3 'an output layer of its own' into apart apart.gguf
    err_has 'differ: gemma in tied_embeddings; '
    # shellcheck disable=SC2086
    small shared $rms --swiglu --no-pre-norm --qk-norm-whole
    expect 0 'one that it wants' into shared shared.gguf --verify
    expect 0 'which is there' gpt-reshape inspect shared.gguf
    out_has 'output.weight'
    # a file has the factors of Llama 3's scaling, and not all of its numbers
    expect 0 'a scaling that no published model has' gpt-train \
        --data-path x_text_document --vocab-size 300 --hidden-size 16 \
        --num-attention-heads 2 --seq-length 4 --train-iters 1 --lr 1e-3 \
        --split 100,0,0 --num-layers 1 --position-embedding-type rope \
        --normalization RMSNorm --swiglu --disable-bias-linear \
        --untie-embeddings-and-output-weights --save odd \
        --rotary-scaling-type llama3 --rotary-scaling-factor 3 \
        --rotary-original-positions 30
    expect 0 'goes out' into odd odd.gguf --verify
    expect 0 'and comes back' into odd.gguf odd2
    expect 0 'as it was' gpt-reshape inspect odd2 --json
    out_has '"rotary_positions":30'
    out_has '"rotary_factor":3'
    expect 0 'LongRoPE' gpt-train --data-path x_text_document \
        --vocab-size 300 --hidden-size 16 --num-attention-heads 2 \
        --seq-length 4 --train-iters 1 --lr 1e-3 --split 100,0,0 \
        --num-layers 1 --position-embedding-type rope \
        --normalization RMSNorm --swiglu --disable-bias-linear --save far \
        --rotary-scaling-type longrope --rotary-original-positions 3 \
        --rotary-short-factors 1,1.1,2,3 --rotary-long-factors 1,4.7,5,6
    expect 0 'goes out' into far far.gguf --verify
    expect 0 'comes back' into far.gguf far2
    expect 0 'as it was' gpt-reshape verify far far2
    gpt-reshape inspect far --json | grep -o '"rotary_.*"vocab_size"' >a
    gpt-reshape inspect far2 --json | grep -o '"rotary_.*"vocab_size"' >b
    check 'with its lists' grep -q '"rotary_long_factors":\[1,4.7,5,6\]' b
    check 'and the rest of its positions' cmp a b
    expect 0 'xIELU' gpt-train --data-path x_text_document \
        --vocab-size 300 --hidden-size 16 --num-attention-heads 2 \
        --seq-length 4 --train-iters 2 --lr 1e-1 --split 100,0,0 \
        --num-layers 2 --position-embedding-type rope \
        --normalization RMSNorm --qk-layernorm --disable-bias-linear \
        --activation-function xielu --save xielu
    expect 0 'goes out' into xielu xielu.gguf --verify
    expect 0 'comes back' into xielu.gguf xielu2
    expect 0 'with the same numbers' gpt-reshape verify xielu xielu2
    sed 's/xielu.alpha_n/xielu.alpha_m/' xielu.gguf >no.gguf
    expect 3 'without a list' into no.gguf no
    err_has "key 'xielu.alpha_n' is no list of 2 numbers of F32"
    sed 's/rope_factors_short/rope_factors_shorx/' far.gguf >one.gguf
    expect 3 'one of two lists' into one.gguf one
    err_has "'rope_factors_short.weight' has 0 elements"
fi

# ---- files that were made to harm ----
if ! perl -e 1 2>/dev/null; then
    skip 'no perl to make files with'
    tap_done
fi
# Runs perl code that has str(text), key(name, type, value...), and prints.
craft() { # name code
    perl -e '
        sub str { pack("Q<a*", length $_[0], $_[0]) }
        sub head { "GGUF" . pack("VQ<Q<", @_) }
        sub key { str($_[0]) . pack("V", $_[1]) . $_[2] }
        sub tensor { my ($n, $dims, $type, $at) = @_;
            str($n) . pack("VQ<*", scalar @$dims, @$dims) .
            pack("VQ<", $type, $at) }
        $arch = key("general.architecture", 8, str("llama"));
        '"$2" >"$1.gguf"
}
bad() { # name message code
    craft "$1" "$3"
    expect 3 "$1" timeout 60 gpt-reshape inspect "$1.gguf"
    err_has "$2"
}
# Whether a text begins with a token follows from the model where no key says it.
begins() { # pre ids what
    craft begins '@k = (33 .. 126, 161 .. 172, 174 .. 255); $n = 256;
        @l = map { $b = $_; (grep { $_ == $b } @k) ? $b : $n++ } 0 .. 255;
        utf8::encode($_) for @t = map { chr } @l;
        print head(3, 0, 6), $arch,
            key("tokenizer.ggml.model", 8, str("gpt2")),
            key("tokenizer.ggml.pre", 8, str("'"$1"'")),
            key("tokenizer.ggml.tokens", 9,
                pack("VQ<", 8, 257) . join "", map { str($_) } @t, "<|b|>"),
            key("tokenizer.ggml.token_type", 9,
                pack("VQ<V*", 5, 257, (1) x 256, 3)),
            key("tokenizer.ggml.bos_token_id", 4, pack("V", 256))'
    expect 0 "a vocabulary of $1" gpt-preprocess --input a.jsonl --force \
        --output-prefix begins --tokenizer-model begins.gguf \
        --tokenizer-type HuggingFaceTokenizer
    expect 0 "$3" gpt-dataset cat begins_text_document
    check "$2" test "$(cat out)" = "$2"
}
echo '{"text": "a"}' >a.jsonl
begins gpt-2 97 'adds no token'
begins llama-bpe '256 97' 'begins with one'
bad short 'the header ends in the middle' 'print "GGUF", "\3\0\0\0"'
bad version 'GGUF version 1: only 2 and 3' 'print head(1, 0, 0), "x" x 99'
bad swapped 'big-endian' 'print "GGUF", pack("NQ>Q>", 3, 1, 1), "x" x 99'
bad tensors 'more tensors than the file can hold' 'print head(3, 1 << 50, 0)'
bad tensors2 'more tensors than the file can hold' \
    'print head(3, 0xffffffffffffffff, 0)'
bad keys 'more keys than the file can hold' 'print head(3, 0, 1 << 60)'
bad name 'a name is longer than the file' \
    'print head(3, 0, 1), pack("Q<", 1 << 63), "x" x 99'
bad longname 'a name is too long' \
    'print head(3, 0, 1), key("k" x 70000, 4, "x" x 9)'
bad nul 'a name holds a NUL' 'print head(3, 0, 1), key("a\0b", 4, "x" x 9)'
bad type 'a value of an unknown type' 'print head(3, 0, 1), key("a", 13, "x" x 9)'
bad bool 'a bool is neither 0 nor 1' 'print head(3, 0, 1), key("a", 7, "\2" x 9)'
bad string 'a string is longer than the file' \
    'print head(3, 0, 1), key("a", 8, pack("Q<", 1 << 40))'
bad array 'an array is longer than the file' \
    'print head(3, 0, 1), key("a", 9, pack("VQ<", 10, (1 << 61) + 1))'
bad nested 'an array of this type' \
    'print head(3, 0, 1), key("a", 9, pack("VQ<", 9, 1))'
bad twice "key 'a' twice" \
    'print head(3, 0, 2), key("a", 4, "abcd"), key("a", 4, "abcd")'
bad dims 'too many dimensions' \
    'print head(3, 1, 1), $arch, tensor("t", [1, 1, 1, 1, 1], 0, 0)'
bad zero 'a dimension of this size' \
    'print head(3, 1, 1), $arch, tensor("t", [0], 0, 0)'
bad overflow 'a dimension of this size' \
    'print head(3, 1, 1), $arch, tensor("t", [1 << 40, 1 << 40], 0, 0)'
bad bytes 'size overflows' \
    'print head(3, 1, 1), $arch, tensor("t", [1 << 62], 0, 0)'
bad blocks2 'size overflows' \
    'print head(3, 1, 1), $arch, tensor("t", [(1 << 63) - 32], 8, 0)'
bad past2 '9223372036854775804 bytes from' \
    'print head(3, 1, 1), $arch, tensor("t", [(1 << 61) - 1], 0, 0), "x" x 99'
bad offset 'begins after the end of the file' \
    'print head(3, 1, 1), $arch, tensor("t", [1], 0, 1 << 62)'
bad unaligned 'no multiple of the alignment' \
    'print head(3, 1, 1), $arch, tensor("t", [1], 0, 4), "x" x 99'
bad alignment 'no power of two' \
    'print head(3, 0, 1), key("general.alignment", 4, pack("V", 24)), "x" x 99'
bad alignment0 'out of range' \
    'print head(3, 0, 1), key("general.alignment", 4, pack("V", 0)), "x" x 99'
bad alignment2 'of type f32' \
    'print head(3, 0, 1), key("general.alignment", 6, pack("V", 0)), "x" x 99'
bad past 'it is cut short' \
    'print head(3, 1, 1), $arch, tensor("t", [9999], 0, 0), "x" x 99'
bad blocks 'in blocks of 32' \
    'print head(3, 1, 1), $arch, tensor("t", [33], 8, 0), "x" x 99'
bad nvfp4 "of ggml's type 40 (nvfp4)" \
    'print head(3, 1, 1), $arch, tensor("t", [256], 40, 0), "x" x 99'
bad unknown "of ggml's type 99" \
    'print head(3, 1, 1), $arch, tensor("t", [32], 99, 0), "x" x 99'
bad same "tensor 't' twice" \
    'print head(3, 2, 1), $arch, tensor("t", [1], 0, 0), tensor("t", [1], 0, 32),
     "x" x 199'
bad overlap 'overlap' \
    'print head(3, 2, 1), $arch, tensor("t", [16], 0, 0), tensor("u", [1], 0, 32),
     "x" x 199'
bad words "no tensor 'token_embd.weight'" 'print head(3, 0, 1), $arch, "x" x 99'
bad noarch "no key 'general.architecture'" \
    'print head(3, 1, 0), tensor("token_embd.weight", [8, 4], 0, 0), "x" x 199'
bad other 'general.architecture is mamba: only gpt2, qwen2' \
    'print head(3, 1, 1), key("general.architecture", 8, str("mamba")),
     tensor("token_embd.weight", [8, 4], 0, 0), "x" x 199'
bad nokey "no key 'llama.context_length'" \
    'print head(3, 1, 1), $arch, tensor("token_embd.weight", [8, 4], 0, 0),
     "x" x 199'
bad parts 'it is one of 3 files' \
    'print head(3, 0, 2), $arch, key("split.count", 2, pack("v", 3)), "x" x 99'
run() { # name option...: a model in directory NAME
    name=$1
    shift
    gpt-train --mock-data --vocab-size 50 --hidden-size 16 \
        --num-attention-heads 2 --seq-length 16 --micro-batch-size 1 \
        --global-batch-size 1 --train-iters 2 --lr 1e-2 --device cpu -q \
        --position-embedding-type rope --save "$name" "$@"
}

# ---- pairs of characters, as pieces with scores ----
characters() { # pattern of merges to leave out
    perl -CO -e 'my @pieces = ("\x{2581}t", "he", "the", "\x{2581}the", "th",
        "\x{2581}th");
    my @list = ("<unk>", "<s>", "</s>", (map sprintf("<0x%02X>", $_), 0 .. 255),
        "\x{2581}", split(//, "theao\x{4e2d}"), @pieces);
    my %id = map { $list[$_] => $_ } 0 .. $#list;
    my @merges;
    for my $p (@pieces) {
        for my $n (1 .. length($p) - 1) {
            my @half = (substr($p, 0, $n), substr($p, $n));
            push @merges, "@half" if $id{$half[0]} && $id{$half[1]};
        }
    }
    @merges = grep !/$ARGV[0]/, @merges;
    print "{\"added_tokens\":[", join(",", map(qq({"id":$_,
        "content":"$list[$_]","special":true}), 0 .. 2)), "],\"normalizer\":
        {\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",
        \"prepend\":\"\x{2581}\"},{\"type\":\"Replace\",\"pattern\":
        {\"String\":\" \"},\"content\":\"\x{2581}\"}]},\"decoder\":
        {\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",
        \"pattern\":{\"String\":\"\x{2581}\"},\"content\":\" \"},
        {\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]},
        \"model\":{\"type\":\"BPE\",\"byte_fallback\":true,
        \"unk_token\":\"<unk>\",\"vocab\":{",
        join(",", map "\"$list[$_]\":$_", 0 .. $#list), "},\"merges\":[",
        join(",", map "\"$_\"", @merges), "]}}\n";' "$1"
}
run wide --num-layers 1 --vocab-size 280
into wide pieces --to hf -q
rm -f pieces/tokenizer_config.json
characters '^$' >pieces/tokenizer.json
expect 0 'a vocabulary of characters' into pieces pieces.gguf
check 'all rows that no token has are unused' test '[PAD272]' = \
    "$(grep -ao '\[PAD[0-9]*\]' pieces.gguf | head -n 1)"
echo '{"text":"the  hat oath \u00e9 \u4e2d"}' >text.jsonl
ids() { # type model
    gpt-preprocess --input text.jsonl --output-prefix ids \
        --tokenizer-type "$1" --tokenizer-model "$2" --force -q &&
        gpt-dataset cat ids_text_document
}
ids HuggingFaceTokenizer pieces/tokenizer.json >want
ids SentencePieceTokenizer pieces.gguf >got
check 'gives the same ids from either' cmp got want
check 'of which there are some' grep -q '[0-9] [0-9]' want
perl -i -pe '$x = join "", map "\"" . "x" x (65_000 + $_) . "\":$_,",
    274 .. 399; s/"vocab":\{/"vocab":{$x/' pieces/tokenizer.json
run tall --num-layers 1 --vocab-size 400
into tall tall-hf --to hf -q
cp pieces/tokenizer.json tall-hf
rm -f tall-hf/tokenizer_config.json
expect 0 'long tokens take no hour' timeout 60 gpt-reshape \
    --load-path tall-hf --save-path tall.gguf -q
characters 't he' >pieces/tokenizer.json
expect 3 'a cut that is no pair' into pieces pieces.gguf --force
err_has "pairs that make 'the' are missing, or do not follow each other"
cp "$golden/families/unigram-t5.json" pieces/tokenizer.json
expect 3 'a unigram model with steps' into pieces pieces.gguf --force
err_has "model.type: 'Unigram' is not supported in a GGUF file"

# ---- architectures with keys and tensors of their own ----
gemma='--normalization RMSNorm --geglu --disable-bias-linear
--apply-layernorm-1p --scale-embedding'
round() { # arch options...
    arch=$1
    shift
    # shellcheck disable=SC2086 # options are words
    expect 0 "$arch: a model" run "own-$arch" $*
    expect 0 "$arch: into a file" into "own-$arch" "own-$arch.gguf" --verify
    case $arch in
    gemma*)
        err_has 'equals the input, after adding 1 to norms in fp32'
        for type in q8_0 bf16; do
            expect 0 "$arch: as $type" into "own-$arch" typed.gguf --verify \
                --target-params-dtype $type
            err_has "after rounding to $type, and after adding 1 to norms"
            mv typed.gguf last.gguf
        done
        expect 0 "$arch: is it" gpt-reshape verify "own-$arch" last.gguf \
            --target-params-dtype bf16
        out_has 'after rounding to bf16, and after adding 1 to norms in fp32: '
        expect 0 "$arch: floats of a packed file" into "own-$arch.gguf" floats
        expect 0 'are what the file has' gpt-reshape verify "own-$arch.gguf" \
            floats
        out_has 'equals own-'"$arch"'.gguf, bit for bit: '
        rm -r floats
        ;;
    esac
    out=own-$arch.gguf
    check "$arch: by its name" grep -qaF "$arch.context_length" "$out"
    expect 0 "$arch: back" into "$out" "own-$arch-back"
    for from in "own-$arch" "$out" "own-$arch-back"; do
        expect 0 "$arch: a text of $from" gpt-generate --load "$from" \
            --tokenizer-type NullTokenizer --vocab-size 49 --prompt '1 2 3' \
            --greedy --tokens 12 --ignore-eod --device cpu -q
        [ "$from" = "own-$arch" ] && cp out want
        check 'is the same' cmp out want
    done
}
round gemma2 "$gemma --num-layers 4 --post-norm --window-size 5
    --window-attn-skip-freq 2 --attn-logit-softcapping 20
    --final-logit-softcapping 30"
round gemma3 "$gemma --num-layers 7 --post-norm --qk-layernorm --window-size 5
    --window-attn-skip-freq 6 --rotary-base 1000 --rotary-local-base 10000"
round granite "--num-layers 2 --normalization RMSNorm --swiglu
    --disable-bias-linear --embedding-multiplier 12 --residual-multiplier 0.25
    --logit-multiplier 0.125 --query-pre-attn-scalar 64"
round cohere2 "--num-layers 4 --rotary-interleaved --no-norm-bias --shared-norm
    --swiglu --disable-bias-linear --logit-multiplier 0.5 --window-size 5
    --window-attn-skip-freq 4 --no-rope-freq 4"
llama='--num-layers 2 --normalization RMSNorm --swiglu
--untie-embeddings-and-output-weights'
# neighbours that turn have rules of their own
round llama "$llama --disable-bias-linear --rotary-interleaved"
for bias in '' --no-attention-bias --no-mlp-bias '--no-mlp-bias --no-qkv-bias'; do
    rm -rf own-llama*
    round llama "$llama $bias"
done
perl -0777 -pe 's/gemma2\.attn_logit_softcapping/gemma2.attn_logit_softcappinh/' \
    own-gemma2.gguf >uncapped.gguf
expect 3 'no cap' gpt-reshape inspect uncapped.gguf
err_has "no key 'gemma2.attn_logit_softcapping'"
if [ -f xielu.gguf ]; then
    perl -0777 -pe \
        's/(xielu\.eps.{16}....)..../$1 . pack("f<", -1)/es or die' \
        xielu.gguf >no.gguf
    expect 3 'another constant of xIELU' into no.gguf no
    err_has "element 1 of key 'xielu.eps' is -1: only -1e-06 is supported"
fi
perl -0777 -pe 's/(granite\.logit_scale....)..../$1 . pack("f<", -8)/es or die' \
    own-granite.gguf >negative.gguf
expect 3 'a divisor below 0' gpt-reshape inspect negative.gguf
err_has "'granite.logit_scale' is -8, must be above 0"

# Values of a file that is whole but for them.
perl -0777 -pe 's/(llama\.block_count....)..../$1 . pack("V", 60000)/es or die' \
    "$golden/gguf/plain.gguf" >layers.gguf
expect 3 'more layers than tensors' timeout 60 gpt-reshape inspect layers.gguf
err_has 'its keys say 60000 layers, it has 11 tensors'
perl -0777 -pe 's/(llama\.attention\.head_count....)..../$1 . pack("V", 5)/es' \
    "$golden/gguf/plain.gguf" >heads.gguf
expect 3 'heads that do not divide' timeout 60 gpt-reshape inspect heads.gguf
perl -0777 -pe 's/blk\.0\.ffn_up/blk.0.ffn_uq/' "$golden/gguf/plain.gguf" \
    >renamed.gguf
expect 3 'a missing tensor' timeout 60 gpt-reshape inspect renamed.gguf
err_has "no tensor 'blk.0.ffn_up.weight'"
perl -0777 -pe 's/llama\.rope\.freq_base/llama.rope.strange__/' \
    "$golden/gguf/plain.gguf" >strange.gguf
expect 3 'a key that is not known' timeout 60 gpt-reshape inspect strange.gguf
err_has "'llama.rope.strange__' is not known"
perl -0777 -pe 's/gpt-2/gpt-9/' "$golden/gguf/plain.gguf" >pre.gguf
expect 0 'a vocabulary that is cut otherwise' into pre.gguf pre
err_has 'is not supported, and left out'
expect 2 'no text from it' gpt-generate --load pre.gguf --prompt x
err_has 'holds no vocabulary'
head -c 62000 "$golden/gguf/plain.gguf" >cut.gguf
expect 3 'a file that was cut' timeout 60 gpt-reshape inspect cut.gguf
err_has 'it is cut short'

tap_done
