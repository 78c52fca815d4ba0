# shellcheck shell=sh
# Text to measure tokenizers with; sourced from the top of the tree.

# Those of the paths that exist, between colons.
existing() {
    found=
    for path; do
        if [ -e "$path" ]; then
            found=${found:+$found:}$path
        fi
    done
    printf '%s\n' "$found"
}

# Sets $texts to "english=PATHS cjk=PATHS": GPT_BENCH_ENGLISH and GPT_BENCH_CJK
# (files and folders, between colons), or what Debian has in its manuals and in
# these folders. A language without text is named and left out.
find_texts() { # English folders...
    ref=/usr/share/debian-reference
    english=${GPT_BENCH_ENGLISH:-$(existing "$@" $ref/*.en.html)}
    cjk=${GPT_BENCH_CJK:-$(existing $ref/*.ja.html $ref/*.zh-*.html)}
    texts="${english:+english=$english }${cjk:+cjk=$cjk}"
    [ -n "$english" ] || echo '# absent: English text (GPT_BENCH_ENGLISH)'
    [ -n "$cjk" ] || echo '# absent: Chinese and Japanese text' \
        '(GPT_BENCH_CJK, or Debian: debian-reference)'
}
