#!/bin/sh
# Runs the examples of gpt-preprocess(1), unchanged, on a small corpus.
# shellcheck disable=SC2154 # $top and $scratch are tap.sh's
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/commands.sh"
commands "$top/man/gpt-preprocess.1" >commands
check 'the page has examples' [ "$(wc -l <commands)" -ge 12 ]

# The files that they need: a corpus, a vocabulary, and a scheduler.
mkdir oscar bin
for i in 1 2 3; do
    awk -v part=$i 'BEGIN { for (i = 0; i < 20000; i++)
        printf "{\"id\":%d,\"text\":\"document %d of part %d\"}\n", i, i, part
        }' >oscar/part-00$i.jsonl
done
if command -v xz >/dev/null && gpt-preprocess --version | grep -q lzma; then
    xz -0 oscar/part-002.jsonl
fi
cp "$top/tests/golden/gpt2/vocab.json" gpt2-vocab.json
cp "$top/tests/golden/gpt2/merges.txt" gpt2-merges.txt
{ head -n 5 oscar/part-001.jsonl
  echo 'not JSON'
  echo '{"text": null}'; } >crawl-1.jsonl
head -n 5 oscar/part-003.jsonl >crawl-2.jsonl
{ echo '{"lang": "en", "title": "A", "text": "a text"}'
  echo '{"lang": "xx", "text": "no title"}'; } >wiki.jsonl
cp "$top/share/examples/preprocess-array.sh" .
cat >bin/sbatch <<'END'
#!/bin/sh
# sbatch --array=FIRST-LAST SCRIPT ARGUMENTS, one task after the other
range=${1#--array=}
shift
for task in $(seq "${range%-*}" "${range#*-}"); do
    SLURM_ARRAY_TASK_ID=$task SLURM_CPUS_PER_TASK=1 sh "$@" || exit
done
END
chmod +x bin/sbatch
PATH=$scratch/bin:$PATH

# One example resumes a run. That run stops here first: its files cannot grow.
grep -- '--output-prefix long' commands >long
check 'one example resumes' [ "$(wc -l <long)" = 1 ]
expect 4 'it was stopped' sh -c "ulimit -f 2000; trap '' XFSZ
    $(cat long) --resume-interval 0 --threads 1"

while IFS= read -r line; do
    expect 0 "$ $line" sh -c "$line"
    case $line in
    *'--output-prefix long'*) err_has 'resuming after document' ;;
    *crawl.bad*--max-errors*) err_has '2 bad lines skipped' ;;
    *'cat crawl'*) out_has 'crawl-1.jsonl:1	document 0 of part 1' ;;
    esac
done <commands
check 'the resumed run gives the same' cmp my-gpt2_text_document.bin \
    long_text_document.bin
check 'parts of eight nodes give the same' cmp my-gpt2_text_document.bin \
    merged.bin
check 'and the same index' cmp my-gpt2_text_document.idx merged.idx
check 'a data set of titles' [ -s wiki_title_document.bin ]
tap_done
