#!/bin/sh
# gpt-generate: known texts of a model that has learned one document by heart;
# sources of prompts and forms of output; independence of threads and batches;
# failures.
. "$(dirname "$0")/../lib/tap.sh"

i=0
while [ $i -lt 200 ]; do
    echo '{"text": "quick brown"}'
    i=$((i + 1))
done >corpus.jsonl
expect 0 'a corpus' gpt-preprocess --input corpus.jsonl --output-prefix d \
    --tokenizer-type ByteTokenizer --append-eod

train() { # directory options...
    dir=$1
    shift
    gpt-train --data-path d_text_document --tokenizer-type ByteTokenizer \
        --num-layers 2 --hidden-size 32 --num-attention-heads 2 \
        --seq-length 32 --micro-batch-size 4 --split 100,0,0 \
        --hidden-dropout 0 --attention-dropout 0 --eval-iters 0 \
        --save "$dir" --no-save-optim "$@"
}
expect 0 'a model that knows its corpus' train ckpt --train-iters 80 --lr 1e-2 \
    --lr-decay-style constant
expect 0 'one that knows nothing' train fresh --train-iters 1 --lr 1e-12

gen() {
    gpt-generate --load ckpt --threads 1 "$@"
}
say() { # file text...: what printf says
    file=$1
    shift
    printf "$@" >"$file"
}

# ---- texts ----
expect 0 'a new document' gen --greedy --prompt ''
say want 'quick brown\n'
check 'is the one it knows, and ends there' cmp want out
err_has 'tokens/s'
err_has 'GB/s'
expect 0 'a prompt' gen --greedy --prompt 'quick '
say want 'brown\n'
check 'is continued' cmp want out
expect 0 'with --echo' gen --greedy --prompt 'quick ' --echo
say want 'quick brown\n'
check 'it stands in front' cmp want out
expect 0 'three tokens' gen --greedy --prompt qu --tokens 3
say want 'ick\n'
check 'are three' cmp want out
expect 0 'past the end of the document' gen --greedy -p '' --ignore-eod \
    --tokens 20
say want 'quick brown<|endoftext|>quick br\n'
check 'the next one follows' cmp want out
expect 0 'two prompts' gen --greedy --prompt 'quick' 'quick br'
say want ' brown\n---\nown\n'
check 'are divided by a line' cmp want out
expect 0 'tokens up to the last position' gen --greedy -p '' --ignore-eod \
    --tokens 1000 --jsonl </dev/null
out_has '"tokens":32,"finish":"positions"'
err_has '32 positions'
expect 0 'verbose' gen --greedy --prompt quick --verbose
err_has 'of weights, '
expect 0 'quiet' gen --greedy --prompt quick --quiet
check 'says nothing else' test ! -s err

# ---- sources of prompts ----
gen --greedy --prompt quick >want 2>err
say file 'quick\n'
expect 0 'a prompt file' gen --greedy --prompt-file file
check 'without its newline' cmp want out
say marked '\357\273\277quick\r\n'
expect 0 'a file of an editor that marks it' gen --greedy --prompt-file marked
check 'without its mark' cmp want out
gen --greedy <file >out 2>err
check 'standard input' cmp want out
gen --greedy --prompt-file - <file >out 2>err
check 'standard input by name' cmp want out
cat file | gen --greedy >out 2>err
check 'a pipe' cmp want out
say prompts '{"prompt": "quick", "id": "a"}\n{"id": [1, 2], "text": "qui"}\n'
expect 0 'JSON lines' gen --greedy --jsonl --prompt-file prompts
say want '%s\n%s\n' \
    '{"id":"a","sample":1,"text":" brown","prompt_tokens":5,"tokens":6,"finish":"eod"}' \
    '{"id":[1,2],"sample":1,"text":"ck brown","prompt_tokens":3,"tokens":8,"finish":"eod"}'
check 'in and out' cmp want out
say prompts '{"prompt": "\302\205-\342\200\250-\342\200\251-\342\200\252-\303\205", "id": ["\342\200\251"]}\n'
expect 0 'ends of lines in Unicode' gen --jsonl --echo --tokens 1 \
    --prompt-file prompts
check 'divide no line of output' grep -q \
    "\"text\":\"\\\\u0085-\\\\u2028-\\\\u2029-$(printf '\342\200\252-\303\205')" out
out_has '{"id":["\u2029"],'
if script -qec true /dev/null >/dev/null 2>&1; then
    script -qec "gpt-generate --load ckpt" typescript </dev/null >out 2>&1
    check 'a terminal is not waited for' grep -q 'no prompt' out
else
    skip 'no script(1)'
fi

# ---- seeds, threads, batches ----
fresh() {
    gpt-generate --load fresh --seed 7 --num-samples 4 --tokens 20 \
        --temperature 1.2 --top-k 100 --top-p 0.97 --prompt a bcd '' "$@"
}
expect 0 'an untrained model' fresh --threads 1
cp out first
expect 0 'again' fresh --threads 1
check 'the same' cmp first out
expect 0 'two threads' fresh --threads 2
check 'say the same' cmp first out
for n in 1 3 12; do
    expect 0 "$n at once" fresh --batch-size $n
    check 'say the same' cmp first out
done
expect 0 'another seed' fresh --seed 8
check 'says something else' sh -c '! cmp -s first out'
expect 0 'a prompt alone' gpt-generate --load fresh --seed 7 --num-samples 4 \
    --tokens 20 --temperature 1.2 --top-k 100 --top-p 0.97 --prompt a
head -c "$(wc -c <out)" first >start
check 'begins as it does among others' cmp start out
expect 0 'no seed' gpt-generate --load fresh --prompt a
err_has 'seed '
check 'all output is UTF-8' iconv -f UTF-8 -t UTF-16 first

# ---- checkpoints ----
expect 0 'an iteration by number' gen --iteration 80 --greedy -p quick
expect 0 'an iteration by its directory' gpt-generate --greedy -p quick \
    --load ckpt/iter_0000080
expect 4 'no such directory' gpt-generate --load nowhere --prompt a
err_has nowhere
mkdir empty
expect 3 'no checkpoint in it' gpt-generate --load empty --prompt a
cp -r ckpt cut
model=$(echo cut/iter_0000080/model*.safetensors)
head -c 20000 "$model" >cut/half && mv cut/half "$model"
expect 3 'a model cut short' gpt-generate --load cut --prompt a
err_has safetensors
rm -rf cut && cp -r ckpt cut
printf '\377' | dd of="$model" bs=1 seek=30000 conv=notrunc 2>dd.log
expect 3 'a changed byte' gpt-generate --load cut --prompt a
err_has safetensors
check 'nothing is written then' test ! -s out

# ---- vocabularies ----
expect 0 'a vocabulary' gpt-vocab --input corpus.jsonl --output-prefix v \
    --vocab-size 262
expect 3 'a vocabulary of another model' gen --prompt a \
    --tokenizer-type GPT2BPETokenizer --vocab-file v-vocab.json \
    --merge-file v-merges.txt
err_has '262 tokens'
expect 0 'tokens of it' gpt-preprocess --input corpus.jsonl --output-prefix b \
    --vocab-file v-vocab.json --merge-file v-merges.txt --append-eod
expect 0 'a model of it' gpt-train --data-path b_text_document --num-layers 1 \
    --vocab-file v-vocab.json --merge-file v-merges.txt --hidden-size 32 \
    --num-attention-heads 2 --seq-length 16 --micro-batch-size 4 \
    --split 100,0,0 --eval-iters 0 --save bpe --train-iters 60 --lr 1e-2 \
    --hidden-dropout 0 --attention-dropout 0
expect 0 'which keeps it' gpt-generate --load bpe --greedy --prompt 'quick'
say want ' brown\n'
check 'and continues' cmp want out

# ---- Hugging Face directories ----
hf() { # directory option...: a prompt that is answered as by the checkpoint
    dir=$1
    shift
    expect 0 "from $dir" gpt-generate --load "$dir" --greedy --prompt quick "$@"
    check 'the text of the native checkpoint' cmp want out
}
expect 0 'out to Hugging Face' gpt-reshape --load-path bpe --save-path hf --to hf
hf hf
expect 0 'in shards' gpt-reshape --load-path bpe --save-path shards --to hf \
    --max-shard-size 10KB
check 'that are several' test -f shards/model.safetensors.index.json
hf shards
gpt-generate --load bpe --seed 5 --tokens 30 --num-samples 3 -p '' >want 2>err
expect 0 'by chance' gpt-generate --load hf --seed 5 --tokens 30 \
    --num-samples 3 -p ''
check 'the same texts' cmp want out
say want ' brown\n'
rm hf/tokenizer_config.json
vocab=$(cat hf/vocab.json) awk '
    BEGIN {
        vocab = ENVIRON["vocab"]
        byte_level = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false," \
            "\"trim_offsets\":true,\"use_regex\":true}"
        match(vocab, /"<\|endoftext\|>": *[0-9]+/)
        id = substr(vocab, RSTART, RLENGTH)
        sub(/.*: */, "", id)
        printf "{\"added_tokens\":[{\"id\":%s,\"content\":\"<|endoftext|>\",", id
        printf "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
        printf "\"normalized\":false,\"special\":true}],\"normalizer\":null,"
        printf "\"pre_tokenizer\":%s,\"decoder\":%s,", byte_level, byte_level
        printf "\"model\":{\"type\":\"BPE\",\"vocab\":%s,\"merges\":[", vocab
    }
    !/^#/ && NF == 2 { printf "%s\"%s\"", n++ ? "," : "", $0 }
    END { print "]}}" }' hf/merges.txt >hf/tokenizer.json
mv hf/vocab.json hf/merges.txt .
hf hf
mv vocab.json merges.txt hf
rm hf/tokenizer.json
expect 2 'an iteration of what has none' gpt-generate --load hf --iteration 60 \
    --prompt a
err_has 'no iterations'
rm hf/vocab.json
expect 2 'no vocabulary beside the model' gpt-generate --load hf --prompt a
err_has 'hf holds no vocabulary'
truncate -s 5000 hf/model.safetensors
expect 3 'a model cut short' gpt-generate --load hf --prompt a
err_has 'hf/model.safetensors: truncated'

rm -f bpe/iter_*/merges.txt
expect 3 'a vocabulary that is not there any more' gpt-generate --load bpe \
    --prompt quick
err_has merges.txt
expect 2 'no vocabulary at all' gen --prompt a --tokenizer-type GPT2BPETokenizer
err_has 'holds no vocabulary'

# ---- prompts that are refused ----
expect 3 'a prompt past the last position' gen \
    --prompt 'a prompt that is a good deal longer than 32 bytes'
err_has '49 tokens'
err_has '32 positions'
expect 0 'a prompt up to it' gen --jsonl --ignore-eod \
    --prompt 'just as many bytes: thirty-two !'
out_has '"tokens":1,"finish":"positions"'
expect 4 'no such prompt file' gen --prompt-file nowhere
for line in '{"prompt": 5}' '{"other": "a"}' '[1]' '{"prompt": "a"' \
    '{"prompt": "a\u0000"}' '{"prompt": "a", "id": 9007199254740993}' \
    '{"prompt": "a", "seed": 9007199254740993}' '{"prompt": null}' ''; do
    printf '{"prompt": "fine"}\n%s\n' "$line" >bad
    expect 3 "a bad line: $line" gen --jsonl --prompt-file bad
    err_has 'bad:2'
done
printf '%s\n' '{"prompt": null, "text": "quick", "seed": null, "stop": null}' >nulls
expect 0 'what is null is not given' gen --greedy --jsonl --prompt-file nulls
out_has '"text":" brown"'
check 'and needs no warning' sh -c '! grep warning err'
for field in max_tokens max_completion_tokens max_new_tokens temperature top_p \
    top_k min_p repetition_penalty presence_penalty frequency_penalty n best_of \
    stop ignore_eos logprobs top_logprobs echo logit_bias messages; do
    printf '{"prompt": "a", "%s": 1}\n' $field
done >fields
expect 0 'fields of requests' gen --jsonl --tokens 1 --prompt-file fields
check 'each is said to have no effect' test "$(grep -c \
    "fields:[0-9]*: the field '.*' has no effect here; --.* has" err)" = 19

# ---- options ----
for bad in --tokens=0 --temperature=-1 --top-k=-1 --top-p=1.5 --top-p=nan \
    --batch-size=0 --num-samples=0 --seed=-2 --iteration=x --tokenizer-type=no \
    --no-such; do
    expect 2 "$bad" gen --prompt a "$bad"
done
expect 2 'no --load' gpt-generate --prompt a
expect 5 'no such device' gen --prompt a --device none

# ---- output that fails, and interruption ----
gen --prompt a --num-samples 3 >/dev/full 2>err
got=$?
check 'a full disk' test $got = 4
check 'is said' grep -q 'No space left' err
gen --num-samples 3000 --prompt a --ignore-eod 2>err | head -c 100 >part
check 'a reader that leaves' test "$(wc -c <part)" = 100
check 'is no news' sh -c '! grep -q error: err'
# A process that a shell starts in the background ignores SIGINT; perl undoes
# that.
rm -f part
perl -e '$SIG{INT} = "DEFAULT"; exec @ARGV' timeout 300 gpt-generate \
    --load ckpt --ignore-eod --num-samples 500000 --prompt a --jsonl \
    --prompt-file - </dev/null >part 2>err &
pid=$!
until_true 60 test -s part
kill -INT $pid
wait $pid
got=$?
check 'Ctrl-C ends with 130' test $got = 130
check 'what was there is written' grep -q '"finish":"tokens"\|"finish":"pos' part
check 'up to a whole line' sh -c 'test "$(tail -c 2 part)" = "}"'
tap_done
