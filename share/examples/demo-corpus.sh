#!/bin/sh
# Makes a corpus in the form of OSCAR dumps, one JSON object on each line with
# "id" and "text", from English text that any Debian machine can download.
#
# usage: demo-corpus.sh DIR
#
# Writes DIR/oscar.jsonl.xz (DIR/oscar.jsonl where xz cannot be used) and prints
# its name; messages go to stderr. The text is the first of these that there is:
#   DEMO_TEXT   a file of your own, if that variable names one;
#   kjv         the King James Bible of 1611 (public domain), unpacked from the
#               Debian packages bible-kjv and bible-kjv-text into DIR/package;
#               nothing is installed;
#   documents   files in /usr/share: manuals, copyright notices, licences.
set -eu
dir=${1:?usage: demo-corpus.sh DIR}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

say() { echo "corpus: $*" >&2; }
apt_get() { apt-get -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=20 "$@"; }

# ---- the Bible: "Ge1:1 In the beginning ..." lines into chapters ----

fetch() { # package...: unpacked into $dir/package
    mkdir -p "$dir/package"
    (cd "$dir/package" && apt_get download "$@" 2>apt.log) || return 1
    for deb in "$dir"/package/*.deb; do
        dpkg-deb -x "$deb" "$dir/package" || return 1
        rm "$deb"
    done
}

# The program that prints the text is linked to readline, which may be missing.
readline() {
    ldd "$1" 2>/dev/null | grep -q 'not found' || return 0
    fetch "$(apt-cache depends bible-kjv |
        sed -n 's/.*Depends: \(libreadline[^ ]*\).*/\1/p')"
}

get_kjv() {
    bible=$(command -v bible) && data=/usr/lib
    if [ -z "$bible" ]; then
        command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
            return 1
        fetch bible-kjv bible-kjv-text || {
            say "updating the package lists first"
            apt_get update >&2 && fetch bible-kjv bible-kjv-text
        } || return 1
        bible=$dir/package/usr/bin/bible
        data=$dir/package/usr/lib
        readline "$bible" || return 1
    fi
    for lib in "$dir"/package/usr/lib/*/ "$dir"/package/lib/*/; do
        LD_LIBRARY_PATH=$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    done
    LD_LIBRARY_PATH=$LD_LIBRARY_PATH "$bible" -f -p "$data" gen1:1-rev22:21 \
        </dev/null >"$dir/verses" 2>"$dir/package/bible.log"
    [ "$(wc -l <"$dir/verses")" -gt 30000 ] || return 1
    # A blank line ends a document.
    perl -ne '/^(\w+):\d+ (.*)/ or next;
        print "\n" if defined $chapter && $1 ne $chapter;
        ($chapter, $_) = ($1, $2);
        print "$_\n"' "$dir/verses" >"$dir/text"
    rm "$dir/verses"
}

# ---- documents of this machine ----

get_documents() {
    find /usr/share/debian-reference /usr/share/doc /usr/share/common-licenses \
        /usr/share/perl* /usr/lib/python3 -type f \
        \( -name '*.en.html' -o -name '*.txt' -o -name '*.txt.gz' -o \
        -name 'README*' -o -name copyright -o -name '*.pod' -o \
        -path '*/common-licenses/*' \) -size -2000k 2>/dev/null | sort |
        while read -r f; do
            case $f in
            *.gz) gzip -dc "$f" ;;
            *.html) perl -0777 -pe 's/<(script|style).*?<\/\1>//gs; s/<[^>]*>//g;
                s/&lt;/</g; s/&gt;/>/g; s/&amp;/&/g; s/&[#\w]+;/ /g' "$f" ;;
            *) cat "$f" ;;
            esac
        done | head -c 6000000 >"$dir/text"
    [ "$(wc -c <"$dir/text")" -gt 200000 ]
}

# ---- paragraphs into JSON lines, in an order that is always the same ----

# Blank lines end a paragraph. Short paragraphs are joined to documents of up to
# 2000 characters.
to_jsonl() {
    perl -e '
        use strict;
        local $/ = "";
        my (@docs, $page);
        while (my $p = <STDIN>) {
            $p =~ s/\s*\z//;
            if (!defined $page || length($page) + length($p) > 2000) {
                push @docs, $page if defined $page;
                $page = $p;
            } else {
                $page .= "\n\n" . $p;
            }
        }
        push @docs, $page if defined $page;
        srand 1611;
        for (my $i = $#docs; $i > 0; $i--) {
            my $k = int rand($i + 1);
            @docs[$i, $k] = @docs[$k, $i];
        }
        my $id = 0;
        for (@docs) {
            s/([\\"])/\\$1/g;
            s/\n/\\n/g;
            s/\t/\\t/g;
            s/[\x00-\x1f\x7f]//g;
            printf "{\"id\":%d,\"text\":\"%s\"}\n", $id++, $_;
        }'
}

if [ -n "${DEMO_TEXT:-}" ]; then
    say "text: $DEMO_TEXT"
    cat "$DEMO_TEXT" >"$dir/text"
elif get_kjv; then
    say "text: King James Bible, from the Debian package bible-kjv-text"
elif get_documents; then
    say "text: documents of this machine (bible-kjv could not be fetched)"
else
    say "there is no text; set DEMO_TEXT to a text file of a megabyte or more"
    exit 1
fi

# JSON is UTF-8: gpt-preprocess would refuse other bytes.
iconv -c -f UTF-8 -t UTF-8 <"$dir/text" | to_jsonl >"$dir/oscar.jsonl"
rm "$dir/text"
say "$(wc -l <"$dir/oscar.jsonl") documents, $(wc -c <"$dir/oscar.jsonl") bytes"
out=oscar.jsonl
if [ "${DEMO_XZ:-1}" = 1 ] && command -v xz >/dev/null; then
    xz -3f "$dir/oscar.jsonl"
    out=oscar.jsonl.xz
fi
echo "$dir/$out"
