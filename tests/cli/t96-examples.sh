#!/bin/sh
# Every command of the manual pages is run, and every script of share/examples,
# with small models; what a page or a script promises is there afterwards.
# (README's tutorial is t91's, gpt-preprocess(1) is t92's, the script of
# WikiText-2 is t58's.)
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/commands.sh"
. "$top/tests/lib/port.sh"
for name in OMP_NUM_THREADS GPT_THREADS RANK WORLD_SIZE MASTER_ADDR \
    MASTER_PORT SLURM_PROCID OMPI_COMM_WORLD_SIZE; do
    unset $name
done
gloo=$(gpt-train --version | grep -c ' Gloo')

# What the examples begin with: a corpus, vocabularies, data sets.
families=$top/tests/golden/families
cp "$top/tests/golden/gpt2/vocab.json" "$top/tests/golden/gpt2/merges.txt" .
cp vocab.json my-vocab.json
cp merges.txt my-merges.txt
awk 'BEGIN {
    split("the a king queen dwarf sees likes old red house runs to and", w, " ")
    for (i = 0; i < 20000; i++) {
        x = (x * 1103 + 12345) % 65536
        printf "%s%s", w[x % 13 + 1], i % 40 == 39 ? ".\n\n" : " "
    }
}' >book.txt
awk 'BEGIN { RS = "" } { printf "{\"text\": \"%s\"}\n", $0 }' book.txt \
    >corpus.jsonl
cp corpus.jsonl oscar.jsonl
if command -v xz >/dev/null && gpt-vocab --version | grep -q lzma; then
    xz -k oscar.jsonl
else
    cp oscar.jsonl oscar.jsonl.xz # the first bytes say what it is
fi
preprocess() { # prefix
    gpt-preprocess --input corpus.jsonl --output-prefix "$1" -q \
        --vocab-file vocab.json --merge-file merges.txt --append-eod
}
expect 0 'a data set' preprocess my
expect 0 'and another' preprocess my-gpt2
eod=$(tr -d '\t' <my_text_document.json | sed -n 's/^"eod": *\([0-9]*\).*/\1/p')

# "..." in an example stands for options that the reader has.
small="--num-layers 2 --hidden-size 16 --num-attention-heads 4 \
--seq-length 32 --max-position-embeddings 32 --split 90,10,0 --eval-iters 1 \
--lr 1e-3 --train-iters 4 --global-batch-size 4 --micro-batch-size 1 \
--save-interval 2 --log-interval 1 --threads 1 --device cpu \
--data-path my_text_document --vocab-file vocab.json --merge-file merges.txt"

# Runs the examples of a page. `change` is a script of sed for what is too
# large here; a command of which it leaves nothing is not run.
examples() { # page
    commands "$top/man/$1" >lines
    check "$1 has examples" test -s lines
    sed "$change" lines >short
    while IFS= read -r line; do
        [ -z "$line" ] ||
            expect 0 "$1: $(echo "$line" | cut -c 1-60)" sh -c "$line"
    done <short
}

# ---- gpt-vocab(1) ----
change='s/--output-prefix my$/--output-prefix of-oscar/'
examples gpt-vocab.1
check 'two files of each' [ -s of-oscar-vocab.json -a -s of-oscar-merges.txt \
    -a -s book-vocab.json -a -s book-merges.txt ]

# ---- gpt-tokenizer(5) ----
mkdir llama3
cp "$families/llama3.json" llama3/tokenizer.json
cp "$families/small.tiktoken" o200k_base.tiktoken
cp "$families/unigram.model" spiece.model
gpt-preprocess --input corpus.jsonl --output-prefix my-t5 -q \
    --tokenizer-type SentencePieceTokenizer --tokenizer-model spiece.model
change=''
examples gpt-tokenizer.5

# ---- gpt-dataset(1), gpt-dataset(5) ----
mkdir data parts old old/cache
for suffix in bin idx; do
    for set in data/a data/b parts/1 parts/2 old; do
        cp "my_text_document.$suffix" "$set.$suffix"
    done
done
# The pointer of the second sequence is at 34, after those of all lengths.
n=$(od -A n -t u8 -j 18 -N 8 old.idx | tr -d ' ')
printf '\377' | dd of=old.idx bs=1 seek=$((34 + 4 * n + 8)) conv=notrunc \
    2>/dev/null
expect 3 'a set with a wrong pointer' gpt-dataset verify old
gpt-dataset convert my_text_document --to tntidx -q \
    --output-prefix pile_text_document
gpt-dataset convert my_text_document --to llmc -q \
    --output-prefix fineweb_train_000001
echo '{"tokenizer":{"class":"test","tokenizer_path":["v"]}}' \
    >old/cache/0-GPTDataset-train-description.txt
change="s/--eod 50256/--eod $eod/; s/--documents :10000/--documents :100/
    s/--num-samples 256000 2560 2560/--seq-length 32 --num-samples 40 4/
    $(command -v jq >/dev/null || echo '/jq /d')"
examples gpt-dataset.1
change='s/PREFIX.idx/my_text_document.idx/'
examples gpt-dataset.5
out_has '0000018'

# ---- gpt-train(1), gpt-launch(1) ----
expect 0 'a small Llama' gpt-train --config llama-tiny --train-iters 1 \
    --mock-data --seq-length 32 --tokenizer-model llama3 --save llama-tiny
expect 0 'as Hugging Face has it' \
    gpt-reshape --load-path llama-tiny --save-path llama --to hf
change="s/--seq-length 2048/--seq-length 32/; s/--train-iters 500/--train-iters 2/
    s/--config gpt2-124m/& ${small%%--data-path*}/
    s/--micro-batch-size 4 --global-batch-size 64/--global-batch-size 4/
    s/--train-iters 10000//; s/--save-interval 500//
    s|^cc |& -I$top/common/model |; s|/usr/local/share/gpt|$top/share|
    s|args 2 \\.\\.\\.$|args 2 $small|
    s|\\.\\.\\.$|--data-path my_text_document --vocab-file vocab.json \
--merge-file merges.txt|
    $([ "$gloo" = 1 ] || echo '/gpt-launch/d')"
examples gpt-train.1
check 'a report' test -s report.html
check 'a picture of a pipeline' grep -q '<svg' pipeline.svg
check 'a checkpoint' test -d ckpt/iter_0000004
check 'a model of Hugging Face, trained further' test -s \
    llama-tuned/tokenizer.json -a -s llama-tuned/model.safetensors
for option in $(echo "$small" | tr ' ' '\n' | grep '^--'); do
    value=$(echo "$small" | sed "s/.*$option \([^ ]*\).*/\1/")
    echo "${option#--} = $value"
done >run.conf
echo 'the king' >prompt.txt
next_port
change="s/--nnodes 2 --node-rank 1 --master-addr node0/--master-port $port/
    s/--nproc-per-node 8/--nproc-per-node 2/
    $(command -v sysctl >/dev/null || echo /sysctl/d)"
if [ "$gloo" = 1 ]; then
    examples gpt-launch.1
else
    skip 'built without Gloo'
fi

# ---- gpt-report(1) ----
cp -r ckpt ckpt-a
cp -r ckpt ckpt-b
change='/--follow/d; /^gpt-report ckpt$/d'
examples gpt-report.1
check 'two runs are compared' grep -q '"name":"large"' compare.html

# ---- README: GPT-2 on GPUs, and many ranks ----
# Lines that begin with a program, joined; small, and on the CPU.
sed 's/^ *\([a-z0-9]*\$ \)\{0,1\}//' "$top/README" | awk '
    on || /^gpt-(preprocess|train|launch) -/ {
        on = sub(/\\$/, "")
        printf "%s%s", $0, on ? "" : "\n" }' | tr -s ' ' >readme
check 'README has commands beside the tutorial' [ "$(wc -l <readme)" -ge 8 ]
next_port
sed "/my_text_document/d; s/^gpt-preprocess .*my /: /
    s/oscar-1GB/oscar/; s/--output-prefix my-gpt2/& --force/
    s/--nproc-per-node gpu/--nproc-per-node 2/
    s/--nproc-per-node 4/--nproc-per-node 2/; s/--nnodes 2 --node-rank [01]//
    s/--master-addr node0/--master-port $port/
    s/--save gpt2 --load gpt2/--save on-gpus ${small%% --split*} --device cpu/
    s/--micro-batch-size 16/--micro-batch-size 2/
    s/--global-batch-size 512/--global-batch-size 8 --threads 1/
    s/--train-iters 19073/--train-iters 2/
    s|\\.\\.\\.\$|$small|" readme >short
while IFS= read -r line; do
    case $line in
    gpt-launch*) [ "$gloo" = 1 ] || continue ;;
    esac
    expect 0 "README: $(echo "$line" | cut -c 1-60)" sh -c "$line"
done <short
[ "$gloo" != 1 ] ||
    check 'a checkpoint of the run on GPUs' test -d on-gpus/iter_0000002

# ---- gpt-reshape(1), gpt-generate(1) ----
expect 0 'a model of the hub' \
    gpt-reshape --load-path ckpt --save-path gpt2 --to hf
mkdir gpt
cp -r ckpt/iter_0000004 gpt/iter_0005000
cp -r "$top/tests/golden/hf" model
cp -r "$top/tests/golden/adapter" adapter
change="s|--save ckpt \\.\\.\\.|--save further $small|"
examples gpt-reshape.1
check 'the model was trained further' test -d further/iter_0000004
{ echo '{"id": 1, "prompt": "the king"}'
  echo '{"id": 2, "prompt": "an old house"}'; } >prompts.jsonl
echo '{"text": "the old king sees a house"}' >lambada.jsonl
printf ' = A king = \n \n The old king sees a house . \n' >wiki.test.tokens
expect 0 'a model that chats' \
    gpt-reshape --load-path ckpt --save-path SmolLM2-135M-Instruct --to hf
echo '{% for m in messages %}{{ m.content }}{% endfor %}' \
    >SmolLM2-135M-Instruct/chat_template.jinja
echo 'the king' >said
change='s/--tokens 200/--tokens 20/; s/--top-k 40/& --tokens 8/
    s/--greedy/& --tokens 8/; s/--jsonl/& --tokens 8/
    s/--chat$/& --tokens 8 <said/
    /--merge-adapter/s/.Q:./"1 2" --tokenizer-type NullTokenizer --vocab-size 66/'
[ "$gloo" = 1 ] || change="$change; /gpt-launch/d"
next_port
if command -v curl >where && gpt-generate --version | grep -q libmicrohttpd; then
    change="$change; s|:8080 &|:$port \& echo \$! >server|
        s|^curl .*:8080|curl --fail --retry 9 --retry-connrefused -o answer \
http://127.0.0.1:$port|"
else
    change="$change; /--serve/d; /^curl/d"
    skip 'the server: no libmicrohttpd or no curl'
fi
examples gpt-generate.1
if [ -f server ]; then
    kill "$(cat server)"
    check 'the server answered with a text' grep -q '"text":"' answer
fi
check 'a text for each prompt' [ "$(wc -l <texts.jsonl)" = 2 ]

# ---- share/examples: a usage message, a run, and the same line again ----
for script in "$top"/share/examples/*.sh; do
    name=${script##*/}
    [ "$name" = demo.sh ] && continue
    sh "$script" >out 2>err </dev/null
    check "$name without arguments prints its usage" \
        sh -c "[ $? = 2 ] && grep -q '^usage: \|: usage: ' err"
done
CONFIG=gpt2-tiny
RANKS=2
export CONFIG RANKS
last() { cat "$SAVE/latest_checkpointed_iteration.txt"; }
script=$top/share/examples
if [ "$gloo" = 1 ]; then
    SAVE=one-node
    export SAVE
    # shellcheck disable=SC2086 # a list of options
    one_node() { sh "$script/one-node.sh" $small "$@"; }
    expect 0 'one-node.sh' one_node --exit-interval 2
    check 'it saves' [ "$(last)" = 2 ]
    expect 0 'the same line resumes' one_node
    err_has 'loaded checkpoint'
    check 'and completes the run' [ "$(last)" = 4 ]

    SAVE=two-nodes
    next_port
    PORT=$port
    export PORT
    two_nodes() { # option...
        for node in 1 0; do
            # shellcheck disable=SC2086
            timeout 120 sh "$script/two-nodes.sh" $node 127.0.0.1 $small "$@" \
                >log.$node 2>&1 &
            [ $node = 1 ] && second=$!
        done
        wait $! && wait "$second" || { cat log.0 log.1; return 1; }
    }
    check 'two-nodes.sh, both on this machine' two_nodes --exit-interval 2
    check 'it saves' [ "$(last)" = 2 ]
    check 'the same lines resume' two_nodes
    check 'from the checkpoint' grep -q 'loaded checkpoint' log.0
    check 'and complete the run' [ "$(last)" = 4 ]

    # srun starts the ranks in Slurm's environment, here on one node.
    mkdir bin
    cat >bin/srun <<'END'
#!/bin/sh
for rank in 0 1 2 3; do
    SLURM_PROCID=$rank SLURM_NTASKS=4 SLURM_LOCALID=$rank SLURM_NODEID=0 \
        SLURM_STEP_ID=0 SLURM_NTASKS_PER_NODE=4 SLURM_JOB_NODELIST=localhost \
        timeout 120 "$@" &
    pids="$pids $!"
done
status=0
for pid in $pids; do
    wait "$pid" || status=1
done
exit $status
END
    chmod +x bin/srun
    SAVE=slurm
    slurm() {
        # shellcheck disable=SC2086
        SLURM_JOB_ID=$((16000 + $$ % 4000)) PATH=$scratch/bin:$PATH \
            sh "$script/slurm.sh" $small "$@"
    }
    expect 0 'slurm.sh' slurm --exit-interval 2
    check 'it saves' [ "$(last)" = 2 ]
    expect 0 'the same line resumes' slurm
    err_has 'loaded checkpoint'
    check 'and completes the run' [ "$(last)" = 4 ]
else
    skip 'built without Gloo'
fi

expect 1 'demo.sh without a folder' env BUILD=nothing sh "$script/demo.sh"
err_has "there is no folder 'nothing'; BUILD names another"
# The demonstration, with a model that is smaller still: the programs are those
# of a directory where gpt-train gets options for that.
mkdir build
for program in "$BUILD"/gpt-*; do
    ln -s "$program" build
done
rm build/gpt-train
cat >build/gpt-train <<END
#!/bin/sh
exec '$BUILD/gpt-train' "\$@" --num-layers 1 --hidden-size 16 \\
    --num-attention-heads 2 --seq-length 32 --max-position-embeddings 0 \\
    --lr 0.02 --threads 1 --device cpu
END
chmod +x build/gpt-train
[ ! -f "$BUILD/config.mk" ] || cp "$BUILD/config.mk" build
demo() {
    env -u CONFIG -u SAVE DEMO_TEXT="$scratch/book.txt" DEMO_SECONDS=1 \
        BUILD="$scratch/build" sh "$script/demo.sh"
}
expect 0 'demo.sh' demo
out_has '7. The same command resumes the run'
out_has 'Done in'
for f in demo-vocab.json demo-merges.txt demo_text_document.bin \
    demo_text_document.idx ckpt/metrics.jsonl; do
    check "$f is where it says" test -s "build/demo/$f"
done

if command -v shellcheck >/dev/null; then
    check 'shellcheck finds nothing' shellcheck "$script"/*.sh
else
    skip 'shellcheck is not installed'
fi
tap_done
