#!/bin/sh
# What people give in place of data: the message names what it is, and the
# command or option that helps.
. "$(dirname "$0")/../lib/tap.sh"

tok='--tokenizer-type ByteTokenizer'
pp() { # input prefix options...
    in=$1 out=$2
    shift 2
    gpt-preprocess --input "$in" --output-prefix "$out" $tok "$@"
}
says() { # words of the message
    for word in "$@"; do err_has "$word"; done
}
i=0
while [ $i -lt 60 ]; do
    echo "{\"text\": \"line $i\", \"title\": \"t\"}"
    i=$((i + 1))
done >good.jsonl

# ---- gpt-preprocess ----

if command -v iconv >iconv.where; then
    for code in UTF-16 UTF-16LE UTF-16BE; do
        iconv -f UTF-8 -t $code good.jsonl >$code.jsonl
        expect 3 "$code" pp $code.jsonl u
        says UTF-16 "iconv -f UTF-16"
    done
    sed -n 's/^hint: *\(iconv.*\) makes.*/\1/p' err >advice
    check 'the command of the hint works' sh -c \
        '. ./advice && cmp new good.jsonl'
    printf '{"text": "caf\351"}\n' >latin.jsonl
    expect 3 'Latin-1' pp latin.jsonl u
    says latin.jsonl:1 'invalid UTF-8' 'iconv -f LATIN1' '--on-error skip'
fi
printf '{\n  "text": "a"\n}\n{\n  "text": "b"\n}\n' >pretty.json
expect 3 'pretty-printed JSON' pp pretty.json u
says 'jq -c . ' 'one object a line'
printf '{"text": "a",\n "id": 1}\n' >two.json
expect 3 'an object over two lines' pp two.json u
says 'jq -c . '
printf '[{"text": "a"}, {"text": "b"}]\n' >array.json
expect 3 'a JSON array' pp array.json u
says "jq -c '.[]'"
echo 'some words' >plain.txt
expect 3 'plain text' pp plain.txt u
says 'JSON object' 'jq -cR' 'with -cRs one of a whole file'
if command -v jq >jq.where; then # README shows this one
    mkdir texts
    printf 'one\ntwo "3"\n' >'texts/a b.txt'
    printf 'caf\351' >texts/c.txt
    sed -n 's/^    \(for f in texts.*\)$/\1/p' "$top/README" >advice
    check "README's command reads a folder of texts" sh ./advice
    expect 0 'each is a document' pp corpus.jsonl texts
    expect 0 'as it was' gpt-dataset cat texts_text_document $tok --jsonl
    out_has '"one\ntwo \"3\"\n"'
fi
printf 'PAR1\025\004\025\020\025\024\114\025\002' >x.parquet
expect 3 Parquet pp x.parquet u
says 'a Parquet file' duckdb
printf 'PAR1 and whatever follows' >y.parquet
expect 3 'Parquet of another writer' pp y.parquet u
says 'a Parquet file'
printf 'FEA1\0\0\0\0' >x.feather
expect 3 Feather pp x.feather u
says 'a Feather file'
printf 'SQLite format 3\0\020' >x.db
expect 3 SQLite pp x.db u
says 'an SQLite database' json_object
printf '%%PDF-1.4\n' >x.pdf
expect 3 PDF pp x.pdf u
says 'a PDF file' pdftotext
printf '<!doctype html>\n<p>Not found\n' >x.html
expect 3 HTML pp x.html u
says 'HTML or XML' 'a failed download'
printf 'ARROW1\0\0\377\377\377\377' >x.arrow
expect 3 Arrow pp x.arrow u
says 'an Arrow file' to_json
tar -cf x.tar good.jsonl
expect 3 'a tar archive' pp x.tar u
says 'a tar archive' 'tar -xOf'
tar -cf - good.jsonl | gzip >x.tar.gz
expect 3 'in gzip' pp x.tar.gz u
says 'a tar archive' 'tar -xOf'
printf 'PK\003\004\024\0\0\0' >x.zip
expect 3 'a zip archive' pp x.zip u
says 'a zip archive' 'unzip -p'
printf '\357\273\277{"text": "a"}\n' >mark.one
cat mark.one mark.one >mark.jsonl # as joined files have it
expect 3 'a byte order mark' pp mark.jsonl u
says 'byte order mark' 'sed '
sed -n "s/^hint: *\(sed.*\) removes.*/\1/p" err >advice
check 'its command works' sh -c '. ./advice && ! cmp -s new.jsonl mark.jsonl'
expect 0 'and what it made is read' pp new.jsonl mark
gzip mark.jsonl
expect 3 'a mark within a compression' pp mark.jsonl.gz u
says "gzip -dc <'mark.jsonl.gz' | sed"
cp mark.jsonl.gz mark
expect 3 'whatever it is called' pp mark u
says "gzip -dc <'mark' | sed"
sed -n "s/^hint: *\(gzip.*\) removes.*/\1/p" err >advice
expect 0 'that command works, too' sh -c ". ./advice"
expect 0 'and makes what is read' pp new.jsonl packed
expect 3 'and in a pipe' sh -c "gzip -dc mark.jsonl.gz |
    gpt-preprocess --input - --output-prefix u $tok"
says '(standard input):1' '| sed' "' before gpt-preprocess removes the mark"
expect 3 'and compressed in a pipe' sh -c "cat mark.jsonl.gz |
    gpt-preprocess --input - --output-prefix u $tok"
says '| gzip -dc | sed' "' before gpt-preprocess removes the mark"
# A second reader of standard input would find it empty.
once() {
    expect 2 "$@" <good.jsonl
    check 'nothing is left' sh -c '! ls u.* u_* 2>/dev/null'
}
once 'standard input twice' gpt-preprocess --input - good.jsonl - \
    --output-prefix u --tokenizer-type ByteTokenizer
says '--input names standard input twice'
once 'as a configuration and as input' gpt-preprocess --config - --input - \
    --output-prefix u --tokenizer-type ByteTokenizer
says '--config and --input both read standard input'
once 'twice for a vocabulary' gpt-vocab --input - - --output-prefix u
says '--input names standard input twice'
expect 2 'a pipe by two names' sh -c 'cat good.jsonl | gpt-preprocess \
    --input - /dev/stdin --output-prefix u --tokenizer-type ByteTokenizer'
says '--input names standard input twice'
expect 2 'a pipe by two options' sh -c ': | gpt-preprocess \
    --config - --input /dev/stdin --output-prefix u'
says '--config and --input both read standard input'
expect 0 'a file by redirection has two readers' sh -c '
    gpt-preprocess --input good.jsonl /dev/stdin --output-prefix both \
        --tokenizer-type ByteTokenizer <good.jsonl'
mkfifo mark.pipe
gzip -dc mark.jsonl.gz >mark.pipe &
expect 3 'of any name' pp mark.pipe u
says '| sed' "' before gpt-preprocess removes the mark"
gzip -dc mark.jsonl.gz >"it's.jsonl"
expect 3 'a name that a shell would not take' pp "it's.jsonl" u
says "hint: sed 's/^" "//' removes the mark"
printf '{"content": "a", "id": 1}\n' >other.jsonl
expect 3 'another field' pp other.jsonl u
says "no field 'text'" "'content', 'id'" --json-keys '--on-error skip'
printf '{"text": 1}\n' >number.jsonl
expect 3 'a number' pp number.jsonl u
says 'holds a number' --json-keys
printf '{"text": "a}\n' >broken.jsonl
expect 3 'a broken line' pp broken.jsonl u
says truncated '--on-error skip'
expect 4 'no such directory' pp good.jsonl nodir/o
says "there is no directory 'nodir'" "mkdir -p 'nodir'"
check 'nobody asked for .resume' sh -c '! grep resume err | grep open'
expect 4 'without resuming' pp good.jsonl nodir/o --no-resume
says "there is no directory 'nodir'"
: >empty.jsonl
expect 0 'an empty input' pp empty.jsonl empty
says 'no documents' "'empty_*' are empty" 'cannot be trained on'
check 'nothing is left of the rest' sh -c '! ls -A | grep "^u[_.]"'

# ---- gpt-train --data-path ----

expect 0 'a data set' pp good.jsonl my-gpt2
expect 0 'another' pp good.jsonl two --json-keys text title
set=my-gpt2_text_document
train() { # options...
    gpt-train $tok --num-layers 1 --hidden-size 16 --num-attention-heads 2 \
        --seq-length 16 --micro-batch-size 1 --lr 1e-3 --train-iters 1 \
        --threads 1 --eval-iters 0 "$@"
}
expect 0 'a name without its end' train --data-path my-gpt2
says "taking the data set $set"
expect 3 'two of them' train --data-path two
says "'two' is no data set" 'name one: two_text_document, two_title_document'
mkdir dir && mv two_* dir
expect 3 'a directory' train --data-path dir
says 'name one: dir/two_text_document'
expect 2 'an odd blend' train --data-path 1 $set 2
says 'word 1 of 3' "number '1'" '0.3 PREFIX1'
expect 2 'weights after' train --data-path $set 1 $set 2
says 'word 2 of 4' "number '1'"
for list in "0.3 $set 0.7 $set" "0.3,$set" "$set $set"; do
    expect 2 'a list in quotes or with commas' train --data-path "$list"
    says 'is one word, and no data set' 'words of their own'
done
expect 3 'JSON lines' train --data-path good.jsonl
says 'text in JSON lines' 'gpt-preprocess --input good.jsonl'
gzip -k good.jsonl
expect 3 'compressed ones' train --data-path good.jsonl.gz
says 'text in JSON lines' gpt-preprocess
gpt-vocab --input good.jsonl --output-prefix v --vocab-size 270 -q
expect 3 'a vocabulary' train --data-path v-vocab.json
says 'a vocabulary' '--vocab-file'
expect 3 'merges' train --data-path v-merges.txt
says 'a list of merges' '--merge-file'
for end in bin idx; do
    expect 4 "the .$end" train --data-path $set.$end
    says "without .bin and .idx: $set"
done
expect 4 'nothing of that name' train --data-path absent
says absent.idx
expect 0 'the last one counts' train --data-path nowhere --data-path $set
expect 0 'and of blends' train --data-path 1 nowhere --data-path 0.3 $set \
    0.7 my-gpt2

# Too little to validate with, and nothing.
expect 0 'a split below a sample' train --data-path $set --split 58,2,0 \
    --seq-length 64 --eval-iters 2 --eval-interval 1
says 'its valid split, sequences 58 to 59' 'are repeated'
check 'and it is validated' grep -q 'validation loss at' out err
expect 0 'a train split below a sample' train --data-path $set --split 2,58,0 \
    --eval-iters 0 --seq-length 300
says 'its train split, sequences 0 to 1' 'are repeated'
expect 2 'a train split without a share' train --data-path $set --split 0,1,0
says "split '0,1,0' has no share for training" '--split'
# The articles' shares of a small set: 60 sequences have no thousandth.
expect 0 'a test split of no sequence' train --data-path $set \
    --split 949,50,1 --eval-iters 2
says 'no loss is measured on the test split' '949,50,1 holds no sequence'
expect 0 'a valid split of no sequence' train --data-path $set \
    --split 999,1,0 --eval-iters 2
says 'no loss is measured on the valid split'
expect 0 'no split' train --data-path $set --split 1,0,0 --eval-iters 2
says 'without effect here: --eval-iters' 'nothing is validated'
check 'and that once' test "$(grep -c 'nothing is validated' err)" = 1
expect 0 'no split, in a dry run' train --data-path $set --split 1,0,0 \
    --eval-iters 2 --dry-run
says 'without effect here: --eval-iters' 'nothing is validated'

# ---- lazy data sets ----

for impl in lazy cached; do
    expect 0 "a $impl data set" pp good.jsonl $impl --dataset-impl $impl
    expect 0 'the same as mmap' pp good.jsonl i32 --dtype int32 --force
    for how in infer mmap lazy cached; do
        expect 0 "$impl, read as $how" train --data-impl $how \
            --data-path ${impl}_text_document --train-iters 3 --log-interval 1
        grep -o 'lm loss: [^|]*' out err | sed 's/^[a-z]*://' >loss
        train --data-path i32_text_document --train-iters 3 --log-interval 1 \
            >out 2>err
        grep -o 'lm loss: [^|]*' out err | sed 's/^[a-z]*://' >want
        check 'the losses are those of mmap' sh -c \
            '[ -s want ] && cmp loss want'
    done
done
tap_done
