#!/bin/sh
# Command lines as articles and guides have them, typed by somebody who changed
# only the program's name: each does what it says, or says what to type. A row
# is: exit status | a piece of the messages | command. A refusal has a hint, or
# lists the choices.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/port.sh"
unset OMP_NUM_THREADS GPT_THREADS RANK WORLD_SIZE 2>/dev/null

# What stands for OSCAR, GPT-2's vocabulary, a trained model and files of others.
awk 'BEGIN { for (i = 0; i < 200; i++)
    printf "{\"id\": %d, \"text\": \"line %d of what stands for OSCAR\"}\n",
        i, i }' >oscar-1GB.jsonl
expect 0 'a vocabulary' gpt-vocab --input oscar-1GB.jsonl --output-prefix gpt2 \
    --vocab-size 300
expect 0 'a data set' gpt-preprocess --input oscar-1GB.jsonl \
    --output-prefix my-gpt2 --vocab-file gpt2-vocab.json \
    --merge-file gpt2-merges.txt --append-eod
mkdir wikitext
echo 'print(1)' >pretrain_gpt.py
model="--num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16
    --max-position-embeddings 16 --micro-batch-size 1 --global-batch-size 2
    --lr 0.00015 --train-iters 2 --threads 1 --vocab-size 300 --eval-iters 0"
# shellcheck disable=SC2086 # a list of words
expect 0 'a model' gpt-train $model --data-path my-gpt2_text_document \
    --vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt --save ckpt
next_port
gloo=
gpt-train --version | grep -q ' Gloo' && gloo=1
cuda=
gpt-train --version | grep -q '^cuda:.*GPU' && cuda=1

cat >rows <<'END'
0|documents|gpt-preprocess --input oscar-1GB.jsonl --output-prefix a1 --vocab-file gpt2-vocab.json --dataset-impl mmap --tokenizer-type GPT2BPETokenizer --merge-file gpt2-merges.txt --append-eod
0|--chunk-size (a name of Megatron-LM) has no effect|gpt-preprocess --input oscar-1GB.jsonl --output-prefix a2 --vocab gpt2-vocab.json --merge-file gpt2-merges.txt --workers 8 --chunk-size 32
0|documents|gpt-preprocess --input oscar-1GB.jsonl --output-prefix a3 --vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt --partitions 4 --keep-sequential-samples
2|write a list of strings|gpt-preprocess --input oscar-1GB.jsonl --output-prefix x --split-sentences --keep-newlines --lang english
0|--lang (a name of Megatron-LM) has no effect|gpt-preprocess --input oscar-1GB.jsonl --output-prefix a4 --vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt --keep-newlines --lang english
2|--workers 0, the default, takes all cores|gpt-preprocess --input oscar-1GB.jsonl --output-prefix x --find-optimal-num-workers --workers-to-check 4 8 16
2|--vocab-file and --merge-file, or --tokenizer-model|gpt-preprocess --input oscar-1GB.jsonl --output-prefix x --tokenizer-name-or-path gpt2
4|name tokenizer.json, or the directory|gpt-preprocess --input oscar-1GB.jsonl --output-prefix x --tokenizer-type HuggingFaceTokenizer --tokenizer-model gpt2
3|--json-keys names the field|gpt-preprocess --input oscar-1GB.jsonl --output-prefix x --tokenizer-type ByteTokenizer --json-keys content
3|here they look swapped|gpt-preprocess --input oscar-1GB.jsonl --output-prefix x --vocab-file gpt2-merges.txt --merge-file gpt2-vocab.json
2|name it with --vocab-file|gpt-preprocess --input oscar-1GB.jsonl --output-prefix x
2|name the input with --input|gpt-preprocess oscar-1GB.jsonl --output-prefix x
3|name other files by a pattern|gpt-preprocess --input wikitext --output-prefix x --tokenizer-type ByteTokenizer
4|download it first|gpt-preprocess --input https://huggingface.co/oscar-1GB.jsonl.xz --output-prefix x --tokenizer-type ByteTokenizer
2|data sets are not fetched|gpt-preprocess --dataset_name wikitext --output-prefix x
7|use --force|gpt-preprocess --input oscar-1GB.jsonl --output-prefix my-gpt2 --tokenizer-type ByteTokenizer
0|bytes a token|gpt-vocab --files oscar-1GB.jsonl --save_model v1 --vocab_size 270 --min_frequency 2
0|--character_coverage (a name of SentencePiece)|gpt-vocab --input=oscar-1GB.jsonl --model_prefix=v2 --vocab_size=270 --character_coverage=0.9995
2|byte-level BPE|gpt-vocab --input=oscar-1GB.jsonl --model_prefix=v3 --model_type=unigram
2|<\|endoftext\|>|gpt-vocab --input oscar-1GB.jsonl --output-prefix v4 --special_tokens <s>
0|documents|gpt-dataset merge --input . --output-prefix all
2|gpt-dataset merge --input DIR|gpt-dataset --input . --output-prefix all2
4|there is a data set my-gpt2_text_document|gpt-dataset info my-gpt2
4|named without .bin and .idx: my-gpt2_text_document|gpt-dataset info my-gpt2_text_document.bin
0|trained iterations 1 to 2|$train
0|trained iterations 1 to 2|$train --checkpoint-activations
0|trained iterations 1 to 2|$train --activations-checkpoint-method uniform
0|attention is computed in blocks|$train --use-flash-attn --transformer-impl local --no-async-tensor-model-parallel-allreduce --num-workers 2
0|trained iterations 1 to 2|$train --tensorboard-dir tb --wandb-project p
0|saved checkpoint at iteration 2|$train --position-embedding-type rotary --attention-head-type multiquery --save rot
2|--use-checkpoint-args|$train --resume_from_checkpoint rot
0|no checkpoint in checkpoints/gpt2_2 yet|$train --save checkpoints/gpt2_2 --load checkpoints/gpt2_2
0|its train split|gpt-train $model --data-path my-gpt2_text_document --split 1,199,0
2|optim_grads|$train --zero-stage 2
2|gpt-launch --standalone --nproc-per-node 4|$train --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2
4|named without .bin and .idx: my-gpt2_text_document|gpt-train $model --data-path my-gpt2_text_document.bin
4|download 'megatron_lm_345m_v0.0.zip' first|$train --load megatron_lm_345m_v0.0.zip
2|--micro-batch-size is the batch of one rank|$train --batch_size 12 --gradient_accumulation_steps 5 --max_iters 10
2|give its files: --vocab-file|gpt-train --config_name gpt2-large --tokenizer_name gpt2-large --block_size 1024
0|number of parameters|gpt-train --config gpt2-large --dry-run --micro-batch-size 24 --vocab-size 50257 --data-path my-gpt2_text_document --lr 5e-5 --train-iters 245
4|presets: |gpt-train --config gpt3-175b --dry-run
2|--data-path names the data|gpt-train data/AdvertiseGen_fix/ chatglm3-6b configs/lora.yaml
2|--data-path names the data|gpt-train config/train_gpt2.py
4|python3 in front|gpt-launch --nproc_per_node 2 pretrain_gpt.py --tensor-model-parallel-size 2
2|write --nproc-per-node|gpt-launch --num_processes 2 --mixed_precision bf16 $train
2|write --master-addr HOST|gpt-launch --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint localhost:0 $train
2|start gpt-launch on each node|gpt-launch --hostfile hosts --num_gpus 2 $train
0|tp2pp2: |gpt-reshape --load_path ckpt --save_path tp2pp2 --target_tensor_model_parallel_size 2 --target_pipeline_model_parallel_size 2 --target_data_parallel_size 2 --target_params_dtype bf16 --make_vocab_size_divisible_by 128 --use_distributed_optimizer --print-checkpoint-structure
0|a name of accelerate|gpt-reshape --convert_checkpoint_from_megatron_to_transformers --load_path ckpt --save_path trfs --max_shard_size 200MB --tokenizer_name gpt2
0|a name of Megatron-LM|gpt-reshape --model-type GPT --loader megatron --saver hf --load-dir ckpt --save-dir hf-out
4|mkdir -p 'gpt'|gpt-reshape --load_path ckpt --save_path gpt/trfs --to hf
4|download 'gpt2' first|gpt-reshape --load-path gpt2 --save-path x
2|is not one of|gpt-reshape --load-path ckpt --save-path x --to huggingface
2|to convert: --load-path ckpt|gpt-reshape ckpt x
2|--load names the checkpoint|gpt-generate ckpt --prompt hello
2|--prompt takes several texts|gpt-generate --load ckpt --prompts hello
0|seed|gpt-generate --load ckpt --prompt hello --max_new_tokens=4 --top_p=0.8 --temperature=0.9 --top_k=50
4|no such directory|gpt-generate --load my-gpt2_text_document --prompt hello
END
[ -z "$gloo" ] || cat >>rows <<'END'
0|trained iterations 1 to 2|gpt-launch --nproc_per_node 2 --nnodes 1 --node_rank 0 --master_addr localhost --master_port $port $train --tensor-model-parallel-size 2
0|trained iterations 1 to 2|gpt-launch --standalone --nnodes=1 --nproc_per_node=2 $train
0|trained iterations 1 to 2|gpt-launch --num_gpus 2 --no_python $train
END
[ -n "$cuda" ] || cat >>rows <<'END'
2|--bf16 has the range|$train --fp16
5|hint: |gpt-generate --load ckpt --prompt hello --device cuda
END

train="gpt-train $(echo $model) --data-path my-gpt2_text_document --split 1,0,0"
one_row() { # status, text, command
    got=0
    timeout 60 sh -c "$3" >out 2>err </dev/null || got=$?
    cat err
    [ "$got" = "$1" ] || { echo "exit status $got, want $1"; return 1; }
    [ "$got" = 0 ] || grep -q '^hint: \|is not one of' err || {
        echo 'and what to do is not said'
        return 1
    }
    grep -qF -e "$2" err out || { echo "nothing of '$2'"; return 1; }
}
while IFS= read -r row; do
    status=${row%%|*}
    row=${row#*|}
    command=${row##*|}
    text=$(printf '%s' "${row%|*}" | sed 's/\\|/|/g')
    # the words in the table, and no others
    words=$(printf '%s' "$command" | sed "s#<s>#'<s>'#; s#\\\$train#$train#
        s#\\\$model#$(echo $model)#; s#\\\$port#$port#")
    check "$command" one_row "$status" "$text" "$words"
done <rows
tap_done
