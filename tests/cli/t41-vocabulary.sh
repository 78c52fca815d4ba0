#!/bin/sh
# Vocabularies that do not belong together: the tokenizer of the data, of the
# checkpoint and of the command line; options without effect; ends of a text and
# output layers of Hugging Face directories; prompts that are refused.
# shellcheck disable=SC2046 # lists of words
. "$(dirname "$0")/../lib/tap.sh"

i=0
while [ $i -lt 200 ]; do
    echo '{"text": "quick brown"}'
    i=$((i + 1))
done >corpus.jsonl
vocab() { # prefix size
    expect 0 "a vocabulary of $2" gpt-vocab --input corpus.jsonl \
        --output-prefix "$1" --vocab-size "$2"
    expect 0 'its tokens' gpt-preprocess --input corpus.jsonl --quiet \
        --output-prefix "$1" --vocab-file "$1-vocab.json" \
        --merge-file "$1-merges.txt" --append-eod
}
vocab v 262
vocab w 259
given() { # prefix: the options that name its vocabulary
    echo "--vocab-file $1-vocab.json --merge-file $1-merges.txt"
}
train() { # data prefix, options...
    data=$1
    shift
    gpt-train --data-path "${data}_text_document" --num-layers 1 \
        --hidden-size 32 --num-attention-heads 2 --seq-length 16 \
        --micro-batch-size 4 --split 100,0,0 --eval-iters 0 --lr 1e-2 \
        --hidden-dropout 0 --attention-dropout 0 --threads 1 "$@"
}
gen() { # checkpoint, options...
    dir=$1
    shift
    gpt-generate --load "$dir" --greedy --threads 1 "$@"
}
expect 0 'a model' train v $(given v) --train-iters 60 --save bpe

# ---- training on data of another tokenizer ----
expect 3 'data of another vocabulary' train v $(given w) --train-iters 1
for part in 'v_text_document was made with GPT2BPETokenizer of 262 tokens' \
    'v-vocab.json SHA-256' 'not with GPT2BPETokenizer of 259 tokens' \
    'w-merges.txt SHA-256' '--allow-vocab-mismatch'; do
    err_has "$part"
done
expect 3 'verify says so, too' gpt-dataset verify v_text_document $(given w) \
    --vocab-size 262
out_has 'tokenizer         v_text_document was made with GPT2BPETokenizer of 262'
out_has 'not with GPT2BPETokenizer of 259 tokens'
expect 0 'and nothing of its own' gpt-dataset verify v_text_document $(given v)
expect 0 'insisted on' train w $(given v) --train-iters 1 \
    --allow-vocab-mismatch
err_has 'warning: w_text_document was made with'
expect 3 'data of a blend' gpt-train --data-path 1 v_text_document 1 \
    w_text_document --num-layers 1 --hidden-size 32 --num-attention-heads 2 \
    --seq-length 16 --micro-batch-size 4 --train-iters 1 --lr 1 $(given v)
err_has 'w_text_document was made with'
mkdir renamed
cp v-vocab.json renamed/vocab.json
cp v-merges.txt renamed/merges.txt
expect 0 'the same files by other names' train v --train-iters 1 \
    --vocab-file renamed/vocab.json --merge-file renamed/merges.txt
rm v_text_document.json
expect 0 'data that do not say' train v $(given w) --vocab-size 262 \
    --train-iters 1
expect 3 'a checkpoint of another vocabulary' train w $(given w) \
    --vocab-size 262 --train-iters 61 --load bpe --finetune
err_has 'bpe/iter_0000060 was made with GPT2BPETokenizer of 262 tokens'
expect 0 'insisted on' train w $(given w) --vocab-size 262 \
    --train-iters 1 --load bpe --finetune --allow-vocab-mismatch
err_has 'warning: bpe/iter_0000060 was made with'

# ---- generating with another tokenizer ----
expect 3 'a smaller vocabulary' gen bpe --prompt quick $(given w)
err_has 'bpe/iter_0000060 has GPT2BPETokenizer of 262 tokens'
err_has 'not GPT2BPETokenizer of 259 tokens (w-vocab.json SHA-256'
err_has '--allow-vocab-mismatch'
check 'writes no text' test ! -s out
expect 0 'insisted on' gen bpe --prompt quick $(given w) --allow-vocab-mismatch
err_has 'warning: bpe/iter_0000060 has'
expect 3 'another family' gen bpe --prompt quick --tokenizer-type ByteTokenizer
expect 0 'the same vocabulary, named' gen bpe --prompt quick $(given v)
printf ' brown\n' >want
check 'is the model'"'"'s' cmp want out
expect 0 'out to Hugging Face' gpt-reshape --load-path bpe --save-path hf --to hf
goes_out() { # checkpoint options...
    from=$1
    shift
    rm -rf gone
    expect 0 "$from for transformers" gpt-reshape --load-path "$from" \
        --save-path gone --to hf "$@"
}
end_is() { # id
    check "$1 ends its texts" grep -q "\"eos_token_id\":[[:space:]]*$1\$" \
        gone/generation_config.json
}
end=$(sed -n 's/.*"<|endoftext|>":[ ]*\([0-9]*\).*/\1/p' v-vocab.json)
goes_out bpe
end_is "$end"
expect 0 'a model of numbers' train v --tokenizer-type NullTokenizer \
    --vocab-size 261 --train-iters 1 --save numbers
expect 0 'goes on' train v --tokenizer-type NullTokenizer \
    --vocab-size 261 --train-iters 2 --load numbers --save numbers2
expect 0 'with its own arguments, and the same typed' train v --tokenizer-type \
    NullTokenizer --vocab-size 261 --train-iters 2 --load numbers \
    --use-checkpoint-args --save numbers3
expect 2 'and not with others' train v --tokenizer-type \
    NullTokenizer --vocab-size 260 --train-iters 2 --load numbers \
    --use-checkpoint-args --save numbers4
err_has '--vocab-size is 260 here and 262 in numbers'
goes_out numbers
check 'has no end' sh -c '! grep -q eos_token_id gone/generation_config.json'
goes_out numbers $(given v)
end_is "$end"
expect 0 'a file of it' gpt-reshape --load-path numbers --save-path numbers.gguf \
    $(given v)
expect 0 'takes text' gen numbers.gguf --prompt quick
cp -r hf bare
rm bare/vocab.json bare/merges.txt
expect 3 'no vocabulary to compare with' gen bare --prompt quick $(given w)
err_has 'the tokenizer has 259 tokens, the model of bare 262'
expect 0 'one of the right size' gen bare --prompt quick $(given v)
check 'is used' cmp want out

# ---- a directory with a tokenizer.json alone ----
mkdir fast
perl -MJSON::PP -e '
    local $/;
    open F, "<", "v-vocab.json"; my $vocab = decode_json(<F>);
    open F, "<", "v-merges.txt";
    my @merges = map { [split " "] } grep { !/^#/ && /\S/ } split /\n/, <F>;
    my ($no, $yes) = (JSON::PP::false, JSON::PP::true);
    my $level = {type => "ByteLevel", add_prefix_space => $no,
                 trim_offsets => $yes, use_regex => $yes};
    my $end = "<|endoftext|>";
    print encode_json({version => "1.0", normalizer => undef,
        added_tokens => [{id => $vocab->{$end}, content => $end,
            single_word => $no, lstrip => $no, rstrip => $no,
            normalized => $no, special => $yes}],
        pre_tokenizer => $level, decoder => $level,
        model => {type => "BPE", vocab => $vocab, merges => \@merges}});
' >fast/tokenizer.json 2>perl.log || :
if [ -s fast/tokenizer.json ]; then
    cp hf/config.json hf/generation_config.json hf/model.safetensors \
        hf/tokenizer_config.json fast
    expect 0 'a vocabulary for gpt-generate' gen fast --prompt quick
    check 'the same text' cmp want out
    expect 0 'the same tokens in another file' gen bpe --prompt quick \
        --tokenizer-model fast
    check 'the same text' cmp want out
    expect 0 'a vocabulary for gpt-preprocess' gpt-preprocess --quiet \
        --input corpus.jsonl --output-prefix f --tokenizer-model fast \
        --append-eod
    check 'the same ids' cmp f_text_document.bin v_text_document.bin
    expect 0 'a vocabulary for gpt-train' train f --tokenizer-model fast \
        --train-iters 1 --save fast-ck --load fast --finetune
    check 'is kept' test -f fast-ck/iter_0000001/tokenizer.json
    expect 0 'and without a checkpoint that names ends' train f \
        --tokenizer-model fast --train-iters 1 --save fast-own
    goes_out fast-own
    end_is "$end"
    expect 2 'a family that does not read it' train v $(given v) \
        --tokenizer-type GPT2BPETokenizer --tokenizer-model fast --train-iters 1
    err_has "hint: 'fast' is of --tokenizer-type HuggingFaceTokenizer"
else
    skip 'no JSON::PP'
fi

# ---- options without effect ----
vain() { # option, command...
    option=$1
    shift
    expect 2 "$option in vain" "$@"
    err_has "--$option has no effect on"
    err_has 'hint: '
}
pre() {
    gpt-preprocess --input corpus.jsonl --output-prefix x "$@"
}
vain tokenizer-model train v $(given v) --tokenizer-model nope --train-iters 1
vain tokenizer-model pre $(given v) --tokenizer-model nope
vain tokenizer-model gen bpe -p x $(given v) --tokenizer-model nope
vain tokenizer-model train v --vocab-size 262 --tokenizer-model nope \
    --tokenizer-type GPT2BPETokenizer --train-iters 1
vain vocab-file pre --tokenizer-type ByteTokenizer --vocab-file v-vocab.json
vain merge-file pre --tokenizer-type HuggingFaceTokenizer \
    --tokenizer-model fast --merge-file v-merges.txt
vain vocab-size pre $(given v) --vocab-size 262
vain vocab-size gen bpe -p x --vocab-size 262
vain tiktoken-pattern pre $(given v) --tiktoken-pattern o200k
vain tokenizer-hf-no-include-special-tokens pre $(given v) \
    --tokenizer-hf-no-include-special-tokens
echo '{"text":"1 2 3"}' >numbers.jsonl
expect 0 'a NullTokenizer drops those of all others' gpt-preprocess \
    --input numbers.jsonl --output-prefix null --tokenizer-type NullTokenizer \
    --vocab-size 9 --tiktoken-pattern v2 --tokenizer-model nope \
    --vocab-file nope --tokenizer-special-tokens x
err_has 'warning: --tiktoken-pattern has no effect on NullTokenizer'
err_has 'warning: --vocab-file has no effect on NullTokenizer'
expect 0 'and gpt-train says so once' train null --train-iters 1 \
    --tokenizer-type NullTokenizer --vocab-size 9 --tiktoken-pattern v2
err_has 'warning: --tiktoken-pattern has no effect on NullTokenizer'
check 'and no more' sh -c '! grep -q "without effect here" "$1"' \
    sh "$scratch/err"
expect 4 'a name of a hub' pre --tokenizer-model gpt2
err_has 'tokenizers are not fetched by a name'
mkdir pair
cp v-vocab.json pair/vocab.json
cp v-merges.txt pair/merges.txt
says_pair() { err_has "'pair' has vocab.json and merges.txt: --vocab-file"; }
expect 2 "a directory of GPT-2's two files" pre --tokenizer-model pair
says_pair
expect 4 'as one of tokenizer.json' pre --tokenizer-model pair \
    --tokenizer-type HuggingFaceTokenizer
says_pair
expect 2 'and of their family' pre --tokenizer-model pair \
    --tokenizer-type GPT2BPETokenizer
says_pair

# ---- ends of a text ----
# the ids of the corpus's document: "quick" is 260 and 258, " brown" the rest
brown=$(gpt-dataset cat v_text_document --documents 0:1 |
    awk '{ print $(NF - 1) }')
ends() { # what, text, generation_config.json
    rm -rf ends
    cp -r hf ends
    [ -z "$3" ] || echo "$3" >ends/generation_config.json
    [ -n "$3" ] || rm ends/generation_config.json
    expect 0 "$1" gen ends --prompt quick --tokens 7
    printf '%s\n' "$2" >want
    check "ends there: $2" cmp want out
}
ends 'one end' ' brow' "{\"eos_token_id\": $brown}"
ends 'a list of ends' ' brow' "{\"eos_token_id\": [1, $brown]}"
ends 'none: config.json has it' ' brown' '{}'
ends 'no object' ' brown' '[1, 2]'
ends 'no ids' ' brown' '{"eos_token_id": "x"}'
err_has 'eos_token_id is neither an id below 262 nor a list'
sed "s/\"eos_token_id\":.*/\"eos_token_id\": [2, $brown],/" hf/config.json >c
cp hf/config.json whole && cp c hf/config.json
ends 'those of config.json' ' brow' ''
check 'no word of other settings' sh -c '! grep -q "not used" err'
sed 's/"eos_token_id":/"temperature": 0.7, "top_k": 50, "top_p": 1,\
    "do_sample": true, "early_stopping": false, "suppress_tokens": [7], &/' \
    c >hf/config.json
ends 'an old config.json' ' brow' ''
err_has 'ends/config.json: temperature 0.7, do_sample true, suppress_tokens [7]: '
ends 'another file hides its settings' ' brow' '{"_from": "x"}'
check 'no word of them' sh -c '! grep -q "not used" err'
cp c hf/config.json
ends 'generation_config.json goes before' ' brown' '{"eos_token_id": 261}'
ends 'a list' ' brow' "{\"eos_token_id\": [2, $brown]}"
expect 0 'to native' gpt-reshape --load-path ends --save-path ends-native
expect 0 'which keeps them' gen ends-native --prompt quick
check 'ends there' cmp want out
expect 0 'and back' gpt-reshape --load-path ends-native --save-path ends-hf \
    --to hf
expect 0 'with all of them' gen ends-hf --prompt quick
check 'ends there' cmp want out
expect 0 'unless that is ignored' gen ends --prompt quick --ignore-eod \
    --tokens 7
check 'goes on' grep -q '^ brown<|endoftext|>' out
ends 'other settings' ' brow' '{"do_sample": true, "temperature": 0.6,
    "_from_model_config": true, "use_cache": true, "pad_token_id": 3}'
err_has 'ends/generation_config.json: do_sample true, temperature 0.6: not used'
err_has '--temperature'
cp whole hf/config.json

# ---- an output layer beside tie_word_embeddings ----
add_head() { # from, to, expression that changes the copy of the word table
    rm -rf "$2"
    cp -r "$1" "$2"
    perl -MJSON::PP -e '
        my ($in, $out, $change) = @ARGV;
        local $/;
        open F, "<:raw", $in or die; my $all = <F>;
        my $n = unpack "Q<", $all;
        my $head = decode_json(substr $all, 8, $n);
        my $data = substr $all, 8 + $n;
        my $table = $head->{"transformer.wte.weight"} ||
            $head->{"model.embed_tokens.weight"};
        my ($from, $to) = @{$table->{data_offsets}};
        local $_ = substr $data, $from, $to - $from;
        eval $change;
        $head->{"lm_head.weight"} = {%$table,
            data_offsets => [length $data, $to - $from + length $data]};
        my $text = encode_json($head);
        $text .= " " x (-length($text) % 8);
        open F, ">:raw", $out or die;
        print F pack("Q<", length $text), $text, $data, $_;
    ' "$1/model.safetensors" "$2/model.safetensors" "$3"
}
if perl -MJSON::PP -e 1 2>/dev/null; then
    add_head hf copied ''
    expect 0 'a copy of the word table' gen copied --prompt quick
    printf ' brown\n' >want
    check 'the same text' cmp want out
    check 'without a word' sh -c '! grep -q tie_word err'
    add_head hf head '$_ = pack "f<*", map { -$_ } unpack "f<*", $_'
    expect 0 'another output layer' gen head --prompt quick --tokens 3
    err_has 'lm_head.weight is not the embedding'
    check 'gives another text' sh -c '! cmp -s want out'
    cp out want
    expect 0 'to native and back' sh -c 'gpt-reshape --load-path head \
        --save-path head-n --verify && gpt-reshape --load-path head-n \
        --save-path head-hf --to hf --verify'
    check 'untied' grep -q '"tie_word_embeddings":.*false' head-hf/config.json
    expect 0 'read again' gen head-hf --prompt quick --tokens 3
    check 'the same text' cmp want out
    check 'and no warning' sh -c '! grep -q tie_word err'
    expect 0 'a model like Llama' train v $(given v) --train-iters 2 \
        --position-embedding-type rope --normalization RMSNorm --swiglu \
        --disable-bias-linear --save llama
    expect 0 'for transformers' gpt-reshape --load-path llama \
        --save-path llama-hf --to hf
    check 'is tied' grep -q '"tie_word_embeddings":.*true' llama-hf/config.json
    add_head llama-hf llama-head '$_ = pack "f<*", map { -$_ } unpack "f<*", $_'
    expect 0 'its other output layer' gen llama-head --prompt quick --tokens 3
    err_has 'lm_head.weight is not the embedding'
else
    skip 'no JSON::PP'
fi

# ---- prompts that are refused ----
long='quick brown quick brown quick brown quick brown quick brown quick brown'
expect 3 'one bad prompt of three' gen bpe --prompt quick "$long" 'quick br'
cat >want <<'END'
 brown
---
error: prompt 2: 47 tokens, but there are only 16 positions; shorten it
---
own
END
sed 's/[0-9]* tokens/47 tokens/' out >numbered
check 'the others are answered' cmp want numbered
err_has '1 of 3 prompts are not answered'
expect 3 'a bad prompt alone' gen bpe --prompt "$long"
check 'writes no text' test ! -s out
err_has 'error: prompt 1: '
printf '%s\n' '{"id": "a", "prompt": "quick"}' '{"id": "b", "prompt": 5}' \
    'x' "{\"id\": \"d\", \"prompt\": \"$long\"}" '{"prompt": "\377"}' \
    '{"id": 7, "prompt": "quick br"}' >prompts
expect 3 'bad lines' gen bpe --jsonl --prompt-file prompts
check 'six answers' test "$(wc -l <out)" = 6
sed -n '1p;6p' out >good
check 'of which two are texts' test "$(grep -c '"text":' good)" = 2
check 'and four errors' test "$(grep -c '"sample":1,"error":"' out)" = 4
check 'under their ids' grep -q '^{"id":"b",.*prompts:2' out
check 'or numbers' grep -q '^{"id":3,.*prompts:3' out
check 'one is too long' grep -q '^{"id":"d",.*16 positions' out
err_has '4 of 6 prompts are not answered'
err_has 'prompts:5'
printf '%s\n' '{"prompt": "a", "seed": null}' ' ' '{"prompt": "a"}' >prompts
expect 3 'a blank line' gen bpe --jsonl --prompt-file prompts
out_has '{"id":2,"sample":1,"error":"prompts:2: blank line"}'
err_has '1 of 3 prompts are not answered'
printf '%s\n' '{"id": 1, "prompt": 5}' >prompts
expect 3 'none is good' gen bpe --jsonl --prompt-file prompts --num-samples 2
check 'an error for each sample' test "$(grep -c '"id":1,' out)" = 2
# ---- what texts begin with, where a vocabulary's files cannot say it ----
pieces=$top/tests/golden/families/bpe.model
expect 0 'tokens of pieces' gpt-preprocess --input corpus.jsonl \
    --output-prefix p --tokenizer-model "$pieces" --append-eod
expect 0 'a model of them' train p --tokenizer-model "$pieces" \
    --train-iters 1 --save pieces
expect 0 'elsewhere' gpt-reshape --load-path pieces --save-path pieces-hf \
    --to hf
begins() { # description, checkpoint, tokens of a prompt
    expect 0 "$1" gen "$2" --prompt quick --jsonl --tokens 1
    out_has "\"prompt_tokens\":$3,"
}
expect 0 'a prompt' gen pieces --prompt quick --jsonl --tokens 1
n=$(sed 's/.*"prompt_tokens":\([0-9]*\).*/\1/' out)
config() {
    echo "{\"add_bos_token\": $1, \"bos_token\": $2}" \
        >pieces-hf/tokenizer_config.json
}
rm -f pieces-hf/tokenizer_config.json
begins 'nothing is said' pieces-hf "$n"
config false '"<s>"'
begins 'no beginning' pieces-hf "$n"
config true '{"content": "<s>"}'
begins 'a beginning' pieces-hf $((n + 1))
expect 0 'which goes along' gpt-reshape --load-path pieces-hf \
    --save-path pieces.gguf --to gguf
begins 'as a key' pieces.gguf $((n + 1))
echo '{"add_bos_token": true, "bos_token": "<s>", "add_eos_token": true,
    "eos_token": "</s>"}' >pieces-hf/tokenizer_config.json
begins 'a beginning and an end' pieces-hf $((n + 2))
expect 0 'which go along' gpt-reshape --load-path pieces-hf \
    --save-path ends.gguf --to gguf
begins 'as keys' ends.gguf $((n + 2))
echo '{"add_eos_token": true, "eos_token": "<none>"}' \
    >pieces-hf/tokenizer_config.json
begins 'an end that is not there' pieces-hf "$n"
err_has "texts end with '<none>' there, which the vocabulary does not have"
echo '{"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>"}' \
    >pieces-hf/tokenizer_config.json
begins 'by the class' pieces-hf $((n + 1))
both() { # the last added token
    echo '{"version": "1.0", "added_tokens": [{"id": '"$1"', "content": "<s>",
        "special": true}], "normalizer": {"type": "Prepend", "prepend": "_"},
        "model": {"type": "BPE", "vocab": {"<s>": 0}, "merges": []}}' \
        >pieces-hf/tokenizer.json
}
both 1
begins 'the pieces, in place of what was made of them' pieces-hf $((n + 1))
err_has 'the vocabulary is that of tokenizer.model'
both 100000
expect 3 'which have not all of its tokens' gen pieces-hf --prompt quick
err_has "normalizer.prepend: '_' is not supported"
# both can be read: each is the model's, but not that of another directory
cp "$top/tests/golden/families/unigram-t5.json" pieces-hf/tokenizer.json
expect 0 'one of two, for gpt-train' train p --load pieces-hf --finetune \
    --tokenizer-model pieces-hf/tokenizer.model --train-iters 1
expect 0 'and for gpt-generate' gen pieces-hf --prompt quick --tokens 1 \
    --tokenizer-model pieces-hf/tokenizer.model
rm pieces-hf/tokenizer.model
expect 3 'one that is not there' train p --load pieces-hf --finetune \
    --tokenizer-model "$pieces" --train-iters 1
err_has 'pieces-hf was made with HuggingFaceTokenizer'
cp "$pieces" pieces-hf/tokenizer.model
rm pieces-hf/tokenizer.json
config true '"<none>"'
begins 'one that is not there' pieces-hf "$n"
err_has "texts begin with '<none>' there, which the vocabulary does not have"
config true '"<s>'
expect 3 'a configuration that is none' gen pieces-hf --prompt quick
err_has 'pieces-hf/tokenizer_config.json: offset '
tap_done
