#!/bin/sh
# Names: what other programs call an option, and what the system calls a
# process.
. "$(dirname "$0")/../lib/tap.sh"

one() { gpt-launch --standalone "$@"; }
train() { gpt-train --vocab-size 100 --print-config "$@"; }

# ---- options of other programs ----

expect 0 'a line of the accelerate guide' train --block_size 1024 \
    --learning_rate 5e-5 --per_device_train_batch_size 24 \
    --output_dir awesome_model --per_device_eval_batch_size 24
out_has 'seq-length = 1024'
out_has 'lr = 5e-05'
out_has 'micro-batch-size = 24'
out_has 'save = awesome_model'
err_has '--per_device_eval_batch_size (a name of Transformers) has no effect'
expect 0 'keys of accelerate' train --megatron_lm_tp_degree 2 \
    --megatron_lm_pp_degree=4 --megatron_lm_sequence_parallelism true
out_has 'tensor-model-parallel-size = 2'
out_has 'pipeline-model-parallel-size = 4'
out_has 'sequence-parallel = true'
expect 0 'a script of Megatron-LM 2' train --checkpoint-activations \
    --DDP-impl local --num-workers 2 --no-masked-softmax-fusion
out_has 'recompute-granularity = full'
err_has '--num-workers (a name of Megatron-LM) has no effect here'
expect 0 'a script of Megatron-LM 3' train \
    --activations-checkpoint-method uniform
out_has 'recompute-granularity = full'
out_has 'recompute-method = uniform'
expect 0 'nanoGPT' train --n_layer=4 --n_head=4 --n_embd=64 --dropout=0.25
out_has 'hidden-size = 64'
out_has 'attention-dropout = 0.25'
expect 2 'a name that means something else is answered' train \
    --gradient_accumulation_steps 4
err_has "unknown option '--gradient_accumulation_steps', a name of Transformers"
err_has '--global-batch-size is accumulation steps x --micro-batch-size'
expect 2 'names of GPT-NeoX and LitGPT' train --num-gpus 4 --gas 2 \
    --zero_optimization.stage 1 --pipe_parallel_size 2 --train.max_tokens=9
err_has "unknown options '--num-gpus', '--gas', '--zero_optimization.stage', "
err_has '--num-gpus: gpt-launch starts the ranks'
err_has '--gas: --global-batch-size is accumulation steps x --micro-batch-size'
expect 2 'one of them' train --pipe_parallel_size 2
err_has "'--pipe_parallel_size', a name of GPT-NeoX"
err_has '--pipeline-model-parallel-size; for 0 write 1'
expect 2 'all that are refused' train --moe-expert-capacity-factor 1 \
    --moe-min-capacity 4 --fp8-margin 0 --fp8-interval 1 --lr 1e-3
err_has "unknown options '--moe-expert-capacity-factor', '--moe-min-capacity', '--fp8-margin', '--fp8-interval'"
err_has '--moe-expert-capacity-factor: no token is dropped'
check 'a hint that two share is there once' \
    test "$(grep -o 'no delayed scaling' err | wc -l)" = 1
expect 2 'names of a family' train --lr 1 --moe-input-jitter-eps 0.1 \
    --moe-token-drop-policy probs --mtp-loss-scaling-factor 0.1
err_has "unknown options '--moe-input-jitter-eps', '--moe-token-drop-policy', '--mtp-"
err_has '--moe-input-jitter-eps: --num-experts, --moe-router-topk'
err_has '--mtp-loss-scaling-factor: the model predicts the next token alone'
# Program, a name with its value, and what the answer has.
while IFS='|' read -r program name answer; do
    # shellcheck disable=SC2086 # a name and its value
    expect 2 "$program $name" $program $name
    err_has 'unknown option'
    err_has ', a name of '
    err_has "$answer"
done <<'END'
gpt-train|--nproc_per_node 8|gpt-launch starts the ranks
gpt-train|--top-k 5|gpt-generate continues prompts
gpt-train|--input a.jsonl|gpt-preprocess makes data sets of text
gpt-train|--no-rl-partial-rollouts|the model predicts the next token alone
gpt-train|--disable-dsa-indexer-scoring-relu|attention is dense
gpt-train|--universal-checkpoint|a checkpoint is loaded in any layout
gpt-train|--megatron_lm_hidden_dropout 0|without megatron_lm_ in front
gpt-train|--torch_compile_mode max|kernels are fused
gpt-train|--config_file default.yaml|one a line: name = value
gpt-launch|--config_file default.yaml|the others after gpt-train
gpt-launch|--fsdp_version 2|options of gpt-train
gpt-launch|--partition gpu|srun starts gpt-train itself
gpt-launch|--mca btl tcp|ranks meet through the store
gpt-generate|--start Hello|--prompt TEXT
gpt-generate|--init_from gpt2|--load DIR names the model
gpt-generate|--inference-dynamic-batching|--serve HOST:PORT
gpt-generate|--nproc-per-node 2|gpt-launch --stdio
gpt-reshape|--input_folder a|--load-path FILE or DIR
gpt-reshape|--target_tp 2|--target-tensor-model-parallel-size
END
expect 0 'the sampler of nanoGPT' gpt-generate --out_dir=a --num_samples=5 \
    --max_new_tokens=100 --compile=False --init_from=resume --print-config
out_has 'load = a'
expect 2 'letters of llm.c' gpt-train -i a.bin -o log -e d12 -b 64 -q 0.0 -x 9
err_has "unknown options '-i', '-o', '-e', '-b', '-x'"
err_has '-e: --config names a preset'
expect 2 'a script that is left in its line' train pretrain_gpt.py --lr 1
err_has 'gpt-train takes the place of a script: leave it out'
printf 'mixed_precision: bf16\n' >accelerate.yaml
expect 2 'a file of YAML' train --config accelerate.yaml
err_has 'YAML and JSON are not read'
expect 2 'values that are refused, too' train --main-grads-dtype bf16 \
    --exp-avg-dtype=fp16 --exp-avg-sq-dtype fp32 --fp8-margin 0
err_has "unknown options '--main-grads-dtype bf16', '--exp-avg-dtype fp16', '--fp8-margin'"
err_has '--main-grads-dtype bf16: fp32 is its one value here'
expect 2 'a later word of a list, too' train --fp8-margin 0 \
    --recompute-modules core_attn mlp --lr 1e-3
err_has "unknown options '--fp8-margin', '--recompute-modules mlp'"
expect 0 'what scripts say that changes no number' train --lr 1 \
    --use-tp-pp-dp-mapping --check-weight-hash-across-dp-replicas-interval 10 \
    --disable-gloo-process-groups --encoder-num-layers 3
out_has 'num-layers = 3'
err_has '--use-tp-pp-dp-mapping (a name of Megatron-LM) has no effect here'
for words in '--use-rotary-position-embeddings --no-position-embedding' \
    '--no-position-embedding --position-embedding-type rope' \
    '--position_embedding_type rotary --no_position_embedding'; do
    expect 0 "no table beside rotary positions: $words" train $words
    out_has 'position-embedding-type = ro'
done
err_has '--position-embedding-type is rotary already'
expect 0 'no table alone' train --position-embedding-type absolute \
    --no-position-embedding
out_has 'position-embedding-type = none'
expect 2 'a table after the name that takes it away' train \
    --no_position_embedding --position-embedding-type learned_absolute
err_has '--no_position_embedding excludes --position-embedding-type learned_abs'
expect 0 'what its own tests say' train --lr 1 --test-mode --legacy-tokenizer \
    --overlap-p2p-communication-warmup-flush --dist-ckpt-save-pre-mcore-014 \
    --verify-integrity --async-strategy mcore --eval-micro-batch-size 2
err_has 'warning: 7 names of Megatron-LM without effect here'
expect 0 'what Megatron-LM has since' train --lr 1 --cuda-graph-modules attn mlp \
    --no-tp-comm-bulk-wgrad --ckpt-drop-redundant-extra-state \
    --ckpt-fully-parallel-load-exchange-algo broadcast --nvtx-ranges \
    --flash-attention-version 3 --ddp-param-name-patterns-for-fp32-local-accumulation a b
err_has 'warning: 7 names of Megatron-LM without effect here'
expect 2 'what scales by the width' train --lr 1 --use-mup \
    --eval-global-batch-size 8
err_has 'do not follow from the width'
err_has '--eval-iters batches of --global-batch-size'
expect 0 'sums of gradients in bf16' train --lr 1 --grad-reduce-in-bf16
err_has '--grad-reduce-in-bf16 (a name of Megatron-LM) has no effect here: gradients'
expect 0 'many names have a line together' train --lr 1 --use-flash-attn \
    --use-mcore-models --num-workers 2 --wandb-log=False --no-rope-fusion \
    --distributed-timeout-minutes 60
err_has 'warning: 4 names of Megatron-LM without effect here; --verbose says why of each: --use-flash-attn, --use-mcore-models, --num-workers, --no-rope-fusion'
err_has 'warning: 1 name of nanoGPT without effect here; --verbose says why of each: --wandb-log'
check 'and no other' test "$(wc -l <err)" = 2
expect 0 'or, with --verbose, each its reason' train --lr 1 --use-flash-attn \
    --use-mcore-models --num-workers 2 --no-rope-fusion -v
err_has '--use-mcore-models (a name of Megatron-LM) has no effect here: there is'
check 'in a line each' test "$(wc -l <err)" = 4
expect 2 'lengths in tokens' train --train-tokens 1e9 --lr-decay-tokens 1e9
err_has '--train-tokens: --train-samples is the number of tokens over --seq-length'
expect 0 "Megatron-LM's script of texts" gpt-generate --load . --num-layers 2 \
    --hidden-size 64 --num-attention-heads 4 --max-position-embeddings 256 \
    --fp16 --micro-batch-size 2 --seq-length 256 --recompute \
    --max-batch-size 3 --top_p 0.9 --print-config
err_has '8 names of Megatron-LM without effect here'
out_has 'batch-size = 3'
expect 0 'and that for Llama' gpt-generate --load . --print-config \
    --exit-on-missing-checkpoint --use-checkpoint-args --no-load-optim \
    --no-load-rng --fp16 --untie-embeddings-and-output-weights \
    --use-rotary-position-embeddings --normalization RMSNorm \
    --no-position-embedding --no-masked-softmax-fusion --global-batch-size 1
expect 2 'its server' gpt-generate --load . --port 5000
err_has '--serve HOST:PORT'
expect 0 'its converter' gpt-reshape --model-type GPT --loader llama_mistral \
    --saver core --model-size llama2-7B --checkpoint-type hf --load-dir a \
    --save-dir b --tokenizer-model t --target-tensor-parallel-size 2 --bf16 \
    --print-config
out_has 'to = megatron'
out_has 'target-params-dtype = bf16'
# shellcheck disable=SC2046 # words
expect 2 'more than a message names' train $(seq -f --u%02g 20)
err_has "'--u16' and 4 more"
expect 0 'a list of one word, and of several' train --lr 1 \
    --recompute-modules core_attn core_attn --cp-comm-type a2a p2p --min-lr 0
err_has '--recompute-modules (a name of Megatron-LM) has no effect here: no other'
expect 2 'of which one is refused' train --recompute-modules core_attn mlp
err_has "unknown option '--recompute-modules mlp'"
expect 0 'a rank that is not the first' env RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 \
    MASTER_ADDR=127.0.0.1 MASTER_PORT=29600 gpt-train --vocab-size 100 \
    --num-workers 2 --print-config
check 'leaves warnings to the first' test ! -s err
expect 0 'the first of another node' env RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 \
    gpt-train --vocab-size 100 --num-workers 2 --print-config
err_has '--num-workers (a name of Megatron-LM) has no effect here'
expect 0 'ranks whose store is not known' env RANK=0 WORLD_SIZE=2 gpt-train \
    --vocab-size 100 --config gpt2-124m --micro-batch-size 1 \
    --global-batch-size 2 --lr 1e-9 --print-config
check 'the first line says what gave way' sh -c \
    "head -n 1 out | grep '^# of configuration files: --min-lr, which --lr '"
expect 2 'a value is still missing' train --learning_rate
err_has '--learning_rate needs a value'
expect 2 'a wrong value is told with the option that it is for' train \
    --learning_rate fast
err_has "--lr: 'fast' is not a number"
echo 'learning_rate = 1e-3' >foreign.conf
expect 2 'in a file' train --config foreign.conf
err_has 'foreign.conf:1'
err_has 'here it is --lr VALUE'

expect 0 'torchrun' one --no_python --rdzv_backend c10d --nproc_per_node=1 true
err_has '--rdzv_backend (a name of torchrun) has no effect here'
expect 0 'accelerate launch' gpt-launch --num_machines 1 --machine_rank 0 \
    --main_process_port 29617 --num_cpu_threads_per_process 1 true
expect 2 'restarts are answered' one --max_restarts 3 true
err_has 'gpt-train resumes from its newest checkpoint'

# ---- llama.cpp's ----

expect 2 'a letter of another program is answered' \
    gpt-generate -m model.gguf -p text -n 5
err_has "unknown options '-m', '-n'"
err_has '--load FILE names the model'
expect 0 'long names are taken' gpt-generate --model x --n-predict 5 \
    --chat-template-file t --alias y --jinja --print-config
out_has 'served-model-name = y'
err_has '--jinja (a name of llama.cpp) has no effect here'
expect 2 'those of its converter are answered' gpt-reshape --load-path a \
    --outtype f16 --outfile b.gguf
err_has '--outtype: --target-params-dtype TYPE'
err_has '--outfile: --save-path FILE.gguf'

# ---- processes of a node ----

expect 0 'one process a GPU' env CUDA_VISIBLE_DEVICES=4,5,7 gpt-launch \
    --standalone --nproc-per-node gpu sh -c 'echo $WORLD_SIZE'
check 'as many as are visible' test "$(wc -l <out)" = 3
expect 5 'no GPU' env CUDA_VISIBLE_DEVICES=-1 gpt-launch --standalone \
    --nproc-per-node gpu true
expect 0 'cores without a GPU' env CUDA_VISIBLE_DEVICES= gpt-launch \
    --standalone --nproc-per-node auto sh -c 'echo $WORLD_SIZE'
check 'one process a core' test "$(wc -l <out)" = "$(getconf _NPROCESSORS_ONLN)"
expect 2 'none' one --nproc-per-node 0 true
err_has '0 is out of range (1 to 4096)'
expect 2 'no number' one --nproc-per-node many true
err_has "'many' is not a number, gpu, cpu or auto"

# ---- the name of the process ----

if [ -r /proc/self/comm ]; then
    mkfifo pipe
    gpt-vocab --input pipe --output-prefix v --vocab-size 300 -q &
    pid=$!
    exec 3>pipe
    check 'the system calls a process by its program' \
        test "$(cat /proc/$pid/comm)" = gpt-vocab
    kill "$pid"
    exec 3>&-
    wait "$pid"
else
    skip 'no /proc'
fi
tap_done
