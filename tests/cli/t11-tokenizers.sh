#!/bin/sh
# The families of tokenizers in the programs: text to tokens and back, special
# tokens in a text, a training whose checkpoint gives gpt-generate the
# tokenizer, and files that are refused.
. "$(dirname "$0")/../lib/tap.sh"

golden=$top/tests/golden/families
cat >corpus.jsonl <<'END'
{"text": "hello world, it's 12345 <|endoftext|> \u4e2d\u6587"}
{"text": ""}
{"text": "def f(x):\n    return x"}
END

encode() { # prefix options...
    prefix=$1
    shift
    gpt-preprocess --input corpus.jsonl --output-prefix "$prefix" --quiet "$@"
}
back() { # prefix options...
    prefix=$1
    shift
    gpt-dataset cat "${prefix}_text_document" --jsonl "$@"
}

for kind in "HuggingFaceTokenizer qwen2.json" \
    "HuggingFaceTokenizer chars-first.json" \
    "TikTokenizer small.tiktoken --tiktoken-pattern o200k" \
    "SentencePieceTokenizer bpe.model" "Llama2Tokenizer bpe.model"; do
    set -- $kind
    type=$1 file=$2
    shift 2
    set -- --tokenizer-type "$type" --tokenizer-model "$golden/$file" "$@"
    expect 0 "$type: tokens" encode "$type" --force "$@"
    expect 0 'and text again' back "$type" "$@"
    check 'the beginning is the same' grep -q "hello world, it's" out
    check 'and the code' grep -q 'def f(x):.n    return x' out
    cp out typed
    shift 2
    expect 0 'the file tells the family' back "$type" "$@"
    check 'to the same text' cmp typed out
done
expect 2 'a name that tells nothing' gpt-dataset cat \
    Llama2Tokenizer_text_document --tokenizer-model corpus.jsonl
err_has 'does not tell by its name'
expect 4 'a name that is nothing here' gpt-dataset cat \
    Llama2Tokenizer_text_document --tokenizer-model meta/llama
err_has 'tokenizers are not fetched by a name'
expect 2 'a model beside a merge file' gpt-dataset cat \
    Llama2Tokenizer_text_document --tokenizer-model "$golden/bpe.model" \
    --merge-file x
err_has "bpe.model' is of --tokenizer-type SentencePieceTokenizer"
expect 0 'the directory of a tokenizer.json' sh -c "mkdir model &&
    cp '$golden/llama3.json' model/tokenizer.json &&
    gpt-preprocess --input corpus.jsonl --output-prefix dir --quiet \
        --tokenizer-type HuggingFaceTokenizer --tokenizer-model model"

# ---- special tokens ----
set -- --tokenizer-type HuggingFaceTokenizer --tokenizer-model model
expect 0 'parsed' encode parsed --special parse "$@"
expect 0 'ids' gpt-dataset cat parsed_text_document --documents 0:1
check 'the name is the token' grep -qE ' 300 ' out
check 'and one begins the text' grep -qE '^300 ' out
expect 0 'without a template' encode bare \
    --tokenizer-hf-no-include-special-tokens "$@"
expect 0 'its ids' gpt-dataset cat bare_text_document --documents 0:1
check 'no token 300' sh -c '! grep -qE "(^| )300( |$)" out'
echo '{"eos_token": {"content": "<|im_start|>"}}' >model/tokenizer_config.json
expect 0 'another end of document' encode eos --append-eod "$@"
expect 0 'last ids' gpt-dataset cat eos_text_document --documents 2:3
check 'is what the configuration names' grep -qE ' 301$' out
echo '{"eos_token": "<none>"}' >model/tokenizer_config.json
expect 3 'one that is not there' encode none --append-eod "$@"
err_has "eos_token '<none>'"
rm model/tokenizer_config.json
expect 2 'names among bytes' encode bytes --tokenizer-type ByteTokenizer \
    --special parse
err_has '--special has no effect on ByteTokenizer'

# ---- numbers ----
echo '{"text": "1 2 3"}' >numbers.jsonl
expect 0 'NullTokenizer' gpt-preprocess --input numbers.jsonl --quiet \
    --output-prefix n --tokenizer-type NullTokenizer --vocab-size 9 \
    --append-eod
expect 0 'its ids' gpt-dataset cat n_text_document
printf '1 2 3 9\n' >want
check 'are the numbers' cmp want out
expect 0 'without damage' gpt-dataset verify n_text_document \
    --tokenizer-type NullTokenizer --vocab-size 9
expect 0 'as text' gpt-dataset cat n_text_document --strip-eod \
    --tokenizer-type NullTokenizer --vocab-size 9
printf '1 2 3\n' >want
check 'the same' cmp want out

# ---- training and generation ----
i=0
while [ $i -lt 100 ]; do
    echo '{"text": "hello world"}'
    i=$((i + 1))
done >corpus.jsonl
for kind in "SentencePieceTokenizer bpe.model" \
    "HuggingFaceTokenizer chars-first.json"; do
    command -v gpt-train >/dev/null || break
    rm -rf ckpt hf
    set -- --tokenizer-type "${kind% *}" \
        --tokenizer-model "$golden/${kind#* }"
    expect 0 "${kind#* }: a corpus" encode sp --append-eod --force "$@"
    expect 0 'a model with this tokenizer' gpt-train \
        --data-path sp_text_document --num-layers 1 --hidden-size 32 \
        --num-attention-heads 2 --seq-length 16 --micro-batch-size 4 \
        --split 100,0,0 --hidden-dropout 0 --attention-dropout 0 \
        --eval-iters 0 --save ckpt --no-save-optim --train-iters 100 \
        --lr 1e-2 --lr-decay-style constant --threads 1 "$@"
    expect 0 'a new document' gpt-generate --load ckpt --greedy --prompt '' \
        --threads 1
    check 'by the tokenizer in the checkpoint' grep -q '^hello' out
    expect 0 'a prompt' gpt-generate --load ckpt --greedy --prompt hello \
        --threads 1
    check 'keeps the space of the next word' grep -q '^ world' out
    expect 0 'out to Hugging Face' gpt-reshape --load-path ckpt --save-path hf \
        --to hf
    check 'with </s> for its end' grep -q '"eos_token_id":[[:space:]]*2$' \
        hf/generation_config.json
    expect 2 'another family without its file' gpt-generate --load ckpt \
        --prompt x --tokenizer-type TikTokenizer
done
if command -v gpt-train >/dev/null; then
    check 'the file of characters goes along' cmp hf/tokenizer.json \
        "$golden/chars-first.json"
    expect 3 'but not to GGUF, whose pieces have scores' \
        gpt-reshape --load-path hf --save-path x.gguf --to gguf
    err_has 'hf/tokenizer.json: its merges are not those of pieces with scores'
fi

# ---- refusals ----
sed 's/"NFC"/"NFKC"/' "$golden/qwen2.json" >nfkc.json
expect 3 'a feature that there is not' encode x \
    --tokenizer-type HuggingFaceTokenizer --tokenizer-model nfkc.json
err_has "nfkc.json: normalizer.type: 'NFKC' is not supported"
sed 's/"he":/"<0x41>e":/; s/\["h","e"\]/["<0x41>","e"]/' \
    "$golden/chars-first.json" >merged.json
expect 3 'a merge with a byte' encode x --tokenizer-model merged.json
err_has "model.merges:1: a merge with '<0x41>', which is a byte"
expect 2 'ranks without a pattern' encode x --tokenizer-type TikTokenizer \
    --tokenizer-model "$golden/small.tiktoken"
err_has '--tiktoken-pattern'
expect 2 'no file' encode x --tokenizer-type SentencePieceTokenizer
err_has '--tokenizer-model'
expect 3 'a file of another kind' encode x \
    --tokenizer-type SentencePieceTokenizer \
    --tokenizer-model "$golden/qwen2.json"
expect 0 'the Unicode version' gpt-preprocess --version
check 'is said' grep -q '^Unicode 16.0$' out
tap_done
