#!/bin/sh
# Mistakes of new users with gpt-generate, gpt-reshape and gpt-vocab: each ends
# with the documented status, and says what to do next.
. "$(dirname "$0")/../lib/tap.sh"

hf=$top/tests/golden/hf
cat >corpus.jsonl <<'END'
{"text": "quick brown fox quick brown fox"}
END
expect 0 'a checkpoint' gpt-reshape --load-path "$hf" --save-path ckpt
mkdir other above
echo text >other/notes.txt
cp -r ckpt above/run
cp -r "$hf" bare
rm bare/config.json
cp -r "$hf" parts
mv parts/model.safetensors parts/a.safetensors
echo '{"weight_map": {"transformer.wte.weight": "a.safetensors"}}' \
    >parts/model.safetensors.index.json
for i in pointer page half; do
    cp -r "$hf" $i
done
echo 'version https://git-lfs.github.com/spec/v1' >pointer/model.safetensors
echo '<!DOCTYPE html>' >page/config.json
head -c 20000 "$hf/model.safetensors" >half/model.safetensors
echo 'plain text' >plain.txt
printf '["a", "b"]\n' >list.jsonl
printf '{\n"prompt": "a"\n}\n' >pretty.jsonl
printf '\377\376a\0' >utf16.txt
expect 0 'a data set' gpt-preprocess --input corpus.jsonl --output-prefix set \
    --tokenizer-type ByteTokenizer
mv set_text_document.bin set.bin
mv set_text_document.idx set.idx
: >empty.jsonl
i=0
printf '{' >vocab.json
while [ $i -lt 3 ]; do
    i=$((i + 1))
    printf '"%s": %s, ' $i $i >>vocab.json
done
printf '"0": 0}\n' >>vocab.json
printf '#version: 0.2\n1 2\n' >merges.txt

wrong() { # status, next step, command...
    status=$1 next=$2
    shift 2
    expect "$status" "$*" "$@"
    err_has ": $next"
}
gen() { # status, next step, options...
    status=$1 next=$2
    shift 2
    wrong "$status" "$next" gpt-generate --load ckpt --prompt 1 \
        --tokenizer-type NullTokenizer --vocab-size 66 "$@"
}

# ---- gpt-generate ----
wrong 2 "try 'gpt-generate --help'" gpt-generate
wrong 4 "it is the name of a directory; models are not fetched by a name" \
    gpt-generate --load gpt2 -p a
wrong 4 'check the path' gpt-generate --load ./no/such -p a
# a file of a checkpoint: the directory is that which the program opens
golden=$top/tests/golden
for file in pth/llama/:params.json pth/llama/:consolidated.00.pth \
    pth/litgpt/:lit_model.pth pth/litgpt/:model_config.yaml \
    hf/:model.safetensors hf/:config.json hf_bin/:pytorch_model.bin.index.json \
    megatron/core-qwen/iter_0000003/:mp_rank_00/model_optim_rng.pt \
    megatron/core-gpt-dist/iter_0000003/:.metadata \
    megatron/tp2pp2/:latest_checkpointed_iteration.txt \
    fsdp/titan/step-3/:.metadata deepspeed/zero1/:latest \
    deepspeed/universal/global_step3/:zero/transformer.wpe.weight/fp32.pt; do
    dir=$golden/${file%/:*}
    wrong 3 "it is a file of a checkpoint: name the directory, '$dir'" \
        gpt-generate --load "$dir/${file#*:}" -p a
done
for command in "gpt-reshape inspect $golden/hf/config.json" \
    "gpt-reshape convert $golden/hf/config.json out" \
    "gpt-train --load $golden/hf/config.json --use-checkpoint-args"; do
    wrong 3 "name the directory, '$golden/hf'" $command
done
wrong 3 'it has weights of a Hugging Face directory; config.json is missing' \
    gpt-generate --load bare/model.safetensors -p a
: >half.gguf
wrong 3 'it may be copied or downloaded in part' \
    gpt-generate --load half.gguf -p a
wrong 3 "a checkpoint's directory holds latest_checkpointed_iteration.txt" \
    gpt-generate --load other -p a
wrong 3 "it is not a checkpoint itself; 'above/run' is" \
    gpt-generate --load above -p a
wrong 3 'it has weights of a Hugging Face directory; config.json is missing' \
    gpt-generate --load bare -p a
wrong 3 'the files are not of one model' gpt-generate --load parts -p a
wrong 3 "'git lfs pull' in its directory" gpt-generate --load pointer -p a
wrong 3 'it is a web page and not the file' gpt-generate --load page -p a
for i in SentencePiece HuggingFace; do
    wrong 3 "'git lfs pull' in its directory" gpt-generate --load ckpt -p a \
        --tokenizer-type ${i}Tokenizer \
        --tokenizer-model pointer/model.safetensors
done
wrong 3 'copy or download the file again' gpt-generate --load half -p a
wrong 2 'ask for no iteration' gpt-generate --load "$hf" --iteration 5 -p a
wrong 3 'the only checkpoint there is iter_0000000' \
    gpt-generate --load ckpt --iteration 70 -p a
wrong 2 '--load names the checkpoint, --prompt the text' gpt-generate --load ckpt hello
wrong 2 'a variable of a script may not be set' gpt-generate --load '' -p a
wrong 2 'a variable of a script may not be set' \
    gpt-reshape --load-path ckpt --save-path ''
err_has "--save-path: the name is empty"
wrong 2 'a variable of a script may not be set' gpt-reshape convert ckpt ''
wrong 2 'a variable of a script may not be set' gpt-train --data-path ''
gen 2 'did you mean --prompt?' --promt a
gen 2 'it counts the prompt, too; --tokens counts' --max-length 20
gen 2 'a beam search does not obey it' --num-beams 4 --top-k 3
gen 2 'tokens are chosen by --temperature' --no-repeat-ngram-size 3
gen 2 '--serve has its prompts from requests' --serve 8080
gen 2 'texts go to standard output' --genfile x
gen 2 'name its files: --vocab-file' --tokenizer-name gpt2
gen 2 'did you mean GPT2BPETokenizer?' --tokenizer-type GPT2BPE
gen 5 'devices are auto, cpu, cuda and cuda:N' --device gpu
gen 3 "convert it: iconv -f UTF-16 -t UTF-8 'utf16.txt'" --prompt-file utf16.txt
for file in plain.txt list.jsonl pretty.jsonl; do
    wrong 3 "--jsonl wants an object with a string 'prompt' on each line" \
        gpt-generate --load ckpt --tokenizer-type NullTokenizer --jsonl \
        --prompt-file $file --vocab-size 66
done
expect 0 'no prompts' gpt-generate --load ckpt --jsonl --prompt-file \
    empty.jsonl --tokenizer-type NullTokenizer --vocab-size 66
err_has 'the input holds no prompts'
wrong 2 'give --vocab-file and --merge-file, --tokenizer-model' \
    gpt-generate --load ckpt -p a
wrong 3 '--vocab-file names vocab.json and --merge-file merges.txt; here they' \
    gpt-generate --load ckpt -p a --vocab-file merges.txt --merge-file vocab.json

for option in '--top-k 40' '--top-p 0.9' '--min-p 0.1' '--temperature 0.7'; do
    # shellcheck disable=SC2086 # an option and its value
    gen 2 'leave one of them out' --greedy $option
    err_has "${option%% *} has no effect beside --greedy"
done
echo 'top-k = 40' >choice.conf
expect 0 'but what a file says gives way' gpt-generate --load ckpt --prompt 1 \
    --tokenizer-type NullTokenizer --vocab-size 66 --tokens 1 \
    --config choice.conf --greedy --top-p 1 --temperature 0
for option in --greedy '--temperature 0' '--top-k 1' '--num-beams 2'; do
    # shellcheck disable=SC2086 # an option and its value
    expect 0 "a seed beside $option" gpt-generate --load ckpt --prompt 1 \
        --tokenizer-type NullTokenizer --vocab-size 66 --tokens 1 --seed 5 \
        $option
    err_has 'without effect here: --seed (nothing is drawn)'
done

# ---- gpt-reshape ----
wrong 2 'to convert: --load-path DIR --save-path DIR' gpt-reshape
wrong 2 'to convert: --load-path DIR --save-path DIR' gpt-reshape --load-path a
wrong 2 'to convert: --load-path ckpt --save-path TO' gpt-reshape ckpt out
wrong 2 "did you mean 'inspect'?" gpt-reshape inspct ckpt
wrong 2 'gpt-reshape inspect PATH' gpt-reshape inspect
wrong 2 "gpt-reshape plan FROM TO --json" gpt-reshape --load-path ckpt \
    --save-path x --json
wrong 4 'it is the name of a directory' gpt-reshape inspect nope
wrong 3 "a checkpoint's directory holds" gpt-reshape inspect other
mkdir adapter
: >adapter/adapter_config.json
wrong 3 'adapter/adapter_config.json: offset 0: not valid JSON' gpt-reshape \
    inspect adapter
mkdir sharded
: >sharded/.metadata
wrong 3 'it is of torch.distributed.checkpoint: copy config.json' gpt-reshape \
    inspect sharded
wrong 3 'it is not a checkpoint itself' gpt-reshape --load-path above \
    --save-path x
into() { # status, next step, save path, options...
    status=$1 next=$2 save=$3
    shift 3
    wrong "$status" "$next" gpt-reshape --load-path ckpt --save-path "$save" \
        "$@"
}
into 2 'choose a divisor with --target-tensor-model-parallel-size' x \
    --target-tensor-model-parallel-size 7
into 2 'choose a divisor with --target-pipeline-model-parallel-size' x \
    --target-pipeline-model-parallel-size 5
into 2 'leave it out, or add --to hf' x --max-shard-size 1MB
into 2 'leave it out: one file serves any layout' x --to hf \
    --target-tensor-model-parallel-size 2
into 2 'name another directory with --save-path' ckpt
into 7 'name a new directory' corpus.jsonl
into 7 'name a new directory' bare
into 4 "make it first: mkdir -p 'no/such'" no/such/out --to hf
into 7 'use --force to replace it, or another name' "$hf" --to hf
check 'nothing is left' test ! -e x

# ---- gpt-vocab ----
train() { # status, next step, options...
    status=$1 next=$2
    shift 2
    wrong "$status" "$next" gpt-vocab --output-prefix v --vocab-size 300 "$@"
}
wrong 2 "try 'gpt-vocab --help'" gpt-vocab --output-prefix v
wrong 2 'did you mean --output-prefix?' gpt-vocab --input corpus.jsonl --output v
train 3 'name other files by a pattern' --input other
train 3 '--json-keys names the fields' --input corpus.jsonl --json-keys content
train 3 '--json-keys names the fields' --input list.jsonl
train 3 "jq -c . 'pretty.jsonl' >new.jsonl makes JSON lines" \
    --input pretty.jsonl
printf 'p\000l\000a\000i\000n\000' >plain16.txt
train 3 "iconv -f UTF-16LE -t UTF-8 'plain16.txt' >new" --input plain16.txt
train 3 'name the text that the data set was made from' --input set.bin
printf 'some\000thing\n' >nul.txt
train 3 'name a file of text, or of JSON lines' --input nul.txt
printf 'caf\351 caf\351 caf\351\n' >latin.txt
expect 0 'Latin-1 is trained on' gpt-vocab --output-prefix latin \
    --vocab-size 300 --input latin.txt
err_has "warning: latin.txt: byte 3 is not UTF-8; if it is Latin-1, iconv -f"
wrong 4 "mkdir -p 'no/such' makes it" \
    gpt-vocab --input corpus.jsonl --output-prefix no/such/v
tap_done
