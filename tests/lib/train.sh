# shellcheck shell=sh
# A small data set and a small model, for tests that train. Source it after
# tap.sh. Sets $data (a prefix) and $tiny (options).

# 60 documents of words from a small language, as data_text_document.
make_data() {
    awk 'BEGIN {
        split("the a cat dog sees likes old red house runs to and", w, " ")
        x = 7
        for (i = 0; i < 60; i++) {
            text = ""
            for (j = 0; j < 30; j++) {
                x = (x * 1103 + 12345) % 65536
                text = text w[x % 12 + 1] " "
            }
            printf "{\"text\": \"%s\"}\n", text
        }
    }' >corpus.jsonl
    expect 0 'makes a data set' gpt-preprocess --input corpus.jsonl \
        --output-prefix data --tokenizer-type ByteTokenizer --append-eod
}
data=data_text_document

# For comparisons between layouts: metrics have every step, with all digits.
tiny="--hidden-size 16 --num-attention-heads 4 --seq-length 8
--micro-batch-size 1 --lr 0.003 --split 1,0,0 --eval-iters 0 --log-interval 1
--make-vocab-size-divisible-by 1 --threads 1 --tokenizer-type ByteTokenizer
--data-path $data"

# Compares losses and gradient norms of all steps: prints the largest relative
# difference of each as "loss norm". Fails when one is above 1e-5, or when the
# steps differ.
compare_metrics() { # metrics.jsonl metrics.jsonl steps
    awk -v steps="$3" '
        function value(name) {
            if (!match($0, "\"" name "\":[^,}]*"))
                return "none"
            return substr($0, RSTART + length(name) + 3,
                          RLENGTH - length(name) - 3)
        }
        function differ(a, b, d) {
            if (a == "none" || b == "none" || a == "null" || b == "null")
                return 1
            d = a > b ? a - b : b - a
            return d / (b < 0 ? -b : b)
        }
        { i = value("iteration"); l = value("lm_loss"); n = value("grad_norm") }
        FNR == NR { loss[i] = l; norm[i] = n; next }
        {
            seen++
            if (!(i in loss)) { print "step " i " is new"; exit 1 }
            d = differ(l + 0, loss[i] + 0); if (d > worst) worst = d
            d = differ(n + 0, norm[i] + 0); if (d > worst_norm) worst_norm = d
        }
        END {
            printf "%8.1e %8.1e\n", worst, worst_norm
            exit !(seen == steps && worst <= 1e-5 && worst_norm <= 1e-5)
        }' "$1" "$2"
}

# The sum of a checkpoint's files of tensors: the same bits have the same.
tensors_of() { # iteration's directory
    (cd "$1" && cat ./*.safetensors | cksum)
}
