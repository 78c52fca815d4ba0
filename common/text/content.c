/* Formats that are often given in place of text. A new one is a row; the
 * commands are those that a Debian system has, or that users of such files
 * have. */
#include "text/content.h"

#include "base/io.h"
#include "base/log.h"
#include "base/utf8.h"
#include "text/str.h"

#include <stdio.h>
#include <string.h>

static const struct row {
    const char *magic;
    size_t len, at; /* bytes, and where they are */
    const char *what;
    const char *advice; /* with %s for the name of the file */
} rows[] = {
    {"PAR1", 4, 0, "a Parquet file",
     "duckdb -c \"copy (from '%s') to 'new.jsonl' (format json)\" makes JSON "
     "lines of it"},
    {"ARROW1\0\0", 8, 0, "an Arrow file",
     "write it as JSON lines with the library that made it (of Hugging Face "
     "datasets: to_json())"},
    {"\xFF\xFF\xFF\xFF", 4, 0, "an Arrow stream",
     "write it as JSON lines with the library that made it (of Hugging Face "
     "datasets: to_json())"},
    {"FEA1", 4, 0, "a Feather file",
     "write it as JSON lines with the library that made it"},
    {"Obj\x01", 4, 0, "an Avro file",
     "avro-tools tojson '%s' >new.jsonl makes JSON lines of it"},
    {"SQLite format 3\0", 16, 0, "an SQLite database",
     "sqlite3 '%s' \"select json_object('text', COLUMN) from TABLE\" makes "
     "JSON lines of it"},
    {"\x89HDF\r\n\x1A\n", 8, 0, "an HDF5 file",
     "write its texts as JSON lines with the library that made it"},
    {"\x93NUMPY", 6, 0, "a NumPy array",
     "write its texts as JSON lines with the library that made it"},
    {"%PDF-", 5, 0, "a PDF file",
     "pdftotext '%s' - | jq -Rsc '{text: .}' >new.jsonl makes a JSON line of "
     "it"},
    {"PK\x03\x04", 4, 0, "a zip archive",
     "unzip -p '%s' gives what is in it: read that as standard input"},
    {"ustar", 5, 257, "a tar archive",
     "tar -xOf '%s' gives the files in it, one after the other: read that as "
     "standard input"},
    {"7z\xBC\xAF\x27\x1C", 6, 0, "a 7z archive",
     "7z x -so '%s' gives what is in it: read that as standard input"},
    {"\xFF\xFE", 2, 0, "UTF-16, not UTF-8",
     "iconv -f UTF-16 -t UTF-8 '%s' >new makes UTF-8 of it"},
    {"\xFE\xFF", 2, 0, "UTF-16, not UTF-8",
     "iconv -f UTF-16 -t UTF-8 '%s' >new makes UTF-8 of it"},
    /* The beginning of JSON without a byte order mark. */
    {"{\0", 2, 0, "UTF-16, not UTF-8",
     "iconv -f UTF-16LE -t UTF-8 '%s' >new makes UTF-8 of it"},
    {"\0{", 2, 0, "UTF-16, not UTF-8",
     "iconv -f UTF-16BE -t UTF-8 '%s' >new makes UTF-8 of it"},
    {"MMIDIDX\0", 8, 0, "the index of a data set",
     "it is made of tokens already: training reads it as it is"},
    /* PREFIX_document.json: data/provenance.h */
    {"{\n\t\"tool\":\t\"gpt-preprocess ", 27, 0,
     "what an earlier run of gpt-preprocess wrote beside its data set",
     "a pattern or a folder names '%s', too: leave it out of the input, or "
     "keep data sets in another folder"},
};

/* Magics are compared in the order of the table, and none is the beginning of
 * another. The table's "%s" is replaced here, as a format must be a literal. */
static void advise(struct gpt_err *err, const char *advice, const char *name)
{
    const char *mark = strstr(advice, "%s");

    if (mark)
        gpt_hint(err, "%.*s%s%s", (int)(mark - advice), advice, name, mark + 2);
    else
        gpt_hint(err, "%s", advice);
}

int gpt_content_check(const void *bytes, size_t n, const char *name,
                      struct gpt_err *err)
{
    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        const struct row *r = &rows[i];

        if (n < r->at + r->len ||
            memcmp((const char *)bytes + r->at, r->magic, r->len) != 0)
            continue;
        gpt_fail(err, GPT_EDATA, "%s: not text: it is %s", name, r->what);
        advise(err, r->advice, name);
        return GPT_EDATA;
    }
    return GPT_OK;
}

/* ---- plain text ---- */

/* ASCII in UTF-16 has a NUL in every second byte. */
static bool is_utf16(const char *p, size_t n, bool little)
{
    size_t pairs = n / 2 < 64 ? n / 2 : 64, zeros = 0;

    for (size_t i = 0; i < pairs; i++)
        zeros += p[2 * i + (little ? 1 : 0)] == '\0' &&
                 p[2 * i + (little ? 0 : 1)] != '\0';
    return pairs > 0 && zeros * 2 > pairs;
}

/* True when the index of a data set is beside the file "PREFIX.bin". */
static bool is_tokens(const char *name)
{
    char idx[GPT_JOINED_BYTES];

    if (!gpt_path_ends_in(name, ".bin"))
        return false;
    snprintf(idx, sizeof(idx), "%.*s.idx", (int)strlen(name) - 4, name);
    return gpt_path_exists(idx);
}

static int refuse_nul(const char *p, size_t n, size_t at, const char *name,
                      struct gpt_err *err)
{
    if (is_tokens(name)) {
        gpt_fail(err, GPT_EDATA, "%s: not text: it is the tokens of a data set",
                 name);
        return gpt_hint(err, "name the text that the data set was made from");
    }
    if (is_utf16(p, n, true) || is_utf16(p, n, false)) {
        gpt_fail(err, GPT_EDATA, "%s: not text: it is UTF-16, not UTF-8", name);
        return gpt_hint(err, "iconv -f %s -t UTF-8 '%s' >new makes UTF-8 of it",
                        is_utf16(p, n, true) ? "UTF-16LE" : "UTF-16BE", name);
    }
    gpt_fail(err, GPT_EDATA, "%s: not text: byte %zu is NUL", name, at);
    return gpt_hint(err, "name a file of text, or of JSON lines");
}

/* A NUL is proof, as no text has one. Bytes that are no UTF-8 are not: old mail
 * in a large corpus is no reason to refuse all of it. */
int gpt_content_check_text(const void *bytes, size_t n, const char *name,
                           struct gpt_err *err)
{
    const char *p = bytes, *nul = memchr(p, '\0', n);
    size_t at = 0, len;

    if (nul)
        return refuse_nul(p, n, (size_t)(nul - p), name, err);
    while (at < n && (len = gpt_utf8_length(p + at, n - at)) > 0)
        at += len;
    if (at + 3 < n) /* a character may be cut at the end */
        gpt_warn("%s: byte %zu is not UTF-8; if it is Latin-1, iconv -f LATIN1 "
                 "-t UTF-8 '%s' >new makes UTF-8 of it", name, at, name);
    return GPT_OK;
}

/* ---- JSON ---- */

/* On the next line a key follows, or the end of an object. */
bool gpt_content_is_pretty(const char *line, const char *end)
{
    const char *newline = memchr(line, '\n', (size_t)(end - line));
    const char *first = gpt_skip_blanks(line, end);

    if (!newline || first == end || *first != '{')
        return false;
    const char *next = gpt_skip_blanks(newline, end);
    return next < end && (*next == '"' || *next == '}');
}
